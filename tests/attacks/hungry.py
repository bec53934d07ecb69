"""Programs in Java, Rust and C++ that read the number of a way to take much more memory than they
may, and print ok where nothing stops them.
"""

from __future__ import annotations

JAVA = """
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.*;
import java.util.*;
class Main {
  static void sleep(int ms) { try { Thread.sleep(ms); } catch (InterruptedException e) {} }
  static FileChannel open(String name) throws Exception {
    return FileChannel.open(Paths.get(name), StandardOpenOption.CREATE, StandardOpenOption.READ,
                            StandardOpenOption.WRITE);
  }
  static void touch(ByteBuffer bytes) {
    for (int at = 0; at < bytes.capacity(); at += 4096) bytes.put(at, (byte) 1);
  }
  public static void main(String[] arguments) throws Exception {
    List<Object> kept = new ArrayList<>();
    int which = new Scanner(System.in).nextInt();
    if (which == 0) for (int n = 0; n < 400; n++) {
      byte[] all = new byte[5 << 20]; Arrays.fill(all, (byte) 1); kept.add(all); sleep(2);
    }
    if (which == 1) for (int n = 0; n < 400; n++) {
      ByteBuffer all = ByteBuffer.allocateDirect(5 << 20); touch(all); kept.add(all); sleep(2);
    }
    if (which == 2) for (int n = 0; n < 5000; n++) {
      Thread thread = new Thread(() -> sleep(9000)); thread.setDaemon(true); thread.start();
    }
    if (which == 3) for (int n = 0; n < 30; n++) {
      FileChannel file = open("f" + n);
      ByteBuffer all = file.map(FileChannel.MapMode.READ_WRITE, 0, 50 << 20);
      touch(all); kept.add(all); Files.delete(Paths.get("f" + n)); file.close(); sleep(5);
    }
    if (which == 4) for (int n = 0; n < 200; n++) {
      open("g" + n).write(ByteBuffer.wrap(new byte[5 << 20])); sleep(2);
    }
    System.out.println("ok");
    System.out.flush();
    Runtime.getRuntime().halt(0);
  }
}
"""
RUST = """
use std::{fs, io::Read, process::exit, ptr::null_mut, thread, time::Duration};
extern "C" {
  fn mmap(at: *mut u8, size: usize, how: i32, flags: i32, file: i32, from: i64) -> *mut u8;
  fn fork() -> i32;
  fn vfork() -> i32;
  fn syscall(number: i64, ...) -> i64;
}
const EXIT: i64 = if cfg!(target_arch = "x86_64") { 60 } else { 93 };
fn pause() { thread::sleep(Duration::from_millis(2)); }
fn grow() {
  let mut kept = Vec::new();
  for _ in 0..300 { kept.push(vec![1u8; 5 << 20]); pause(); }
  std::mem::forget(kept);
}
fn deep(n: u64) -> u64 {
  let here = [n; 128];
  if n == 0 { thread::sleep(Duration::from_secs(3)); return 0; }
  1 + deep(here[n as usize % 128] - 1)
}
fn main() {
  let mut text = String::new();
  std::io::stdin().read_to_string(&mut text).unwrap();
  match text.trim().parse::<i32>().unwrap() {
    0 => grow(),
    1 => {
      let start = |_| {
        thread::sleep(Duration::from_millis(20));
        thread::Builder::new().stack_size(200 << 20).spawn(|| deep(100000)).unwrap()
      };
      let all: Vec<_> = (0..12).map(start).collect();
      for one in all { one.join().unwrap(); }  // else a busy machine ends it before they use much
    },
    2 => unsafe {
      for _ in 0..300 {
        let at = mmap(null_mut(), 5 << 20, 3, 0x4022, -1, 0);
        if at as isize == -1 { exit(3); }
        for page in 0..1280 { *at.add(page << 12) = 1; }
        pause();
      }
    },
    3 => unsafe { thread::spawn(|| { pause(); grow(); exit(0); }); syscall(EXIT, 0); },
    4 => for n in 0..100 { fs::write(format!("f{}", n), vec![1u8; 10 << 20]).unwrap(); pause(); },
    5 => unsafe { if mmap(null_mut(), 1 << 30, 3, 0x21, -1, 0) as isize == -1 { exit(3); } },
    _ => unsafe { if fork() < 0 && vfork() < 0 { exit(3); } grow(); },
  }
  println!("ok");
}
"""
CPP = r"""
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <iostream>
#include <string>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>
#include <vector>
void *(*volatile fill)(void *, int, size_t) = memset;
void touch(void *all, long mb) {
  for (long at = 0; at < mb; at += 5) { fill((char *)all + (at << 20), 1, 5 << 20); usleep(2000); }
}
void *map(long mb, int how, int flags, int file) {
  void *at = mmap(0, mb << 20, how, flags, file, 0);
  if (at == MAP_FAILED) exit(3);
  return at;
}
int sized(std::string name, long mb) {
  int file = open(name.c_str(), O_CREAT | O_RDWR, 0600);
  if (file < 0 || ftruncate(file, mb << 20)) exit(3);
  return file;
}
int main() {
  const int mine = MAP_PRIVATE | MAP_ANONYMOUS, all = 1500;
  int which;
  std::cin >> which;
  if (which == 0) touch(map(all, 3, mine | MAP_NORESERVE, -1), all);
  if (which == 1) {
    char *at = (char *)map(all, PROT_NONE, mine, -1);
    for (long mb = 0; mb < all; mb += 5) {
      if (mprotect(at + (mb << 20), 5 << 20, 3)) return 3;
      touch(at + (mb << 20), 5);
    }
  }
  if (which == 2)
    for (int n = 0, file = sized("p", 60); n < 25; n++) touch(map(60, 3, MAP_PRIVATE, file), 60);
  if (which == 3) {
    std::vector<std::thread> threads;
    for (int n = 0; n < 60; n++)
      threads.emplace_back([] { touch(malloc(25 << 20), 25); sleep(2); });
    for (auto &each : threads) each.join();
  }
  if (which == 4)
    for (int n = 0; n < 30; n++) {
      int file = sized("f" + std::to_string(n), 50);
      touch(map(50, 3, MAP_SHARED, file), 50);
      close(file);
    }
  if (which == 5) {
    if (fork() < 0 && vfork() < 0 && syscall(SYS_clone, 0x100L | 17, 0, 0, 0, 0) < 0) return 3;
    touch(malloc(all << 20), all);
  }
  if (which == 6)
    for (int n = 0; n < 200; n++) {
      char *at = (char *)map(8192, 1, mine | MAP_NORESERVE, -1);
      for (long each = 0; each < 8192; each += 2) (void)*(volatile char *)(at + (each << 20));
    }
  std::cout << "ok";
}
"""
PROGRAMS = {"java": (JAVA, 5), "rust": (RUST, 7), "cpp": (CPP, 7)}
"""The source by its language, and how many ways it has."""
