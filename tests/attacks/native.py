"""Attacks of programs that are started by exec, in C and in JavaScript. Each prints `through` only
where it got through; whatever else it does, nothing may be left of it.
"""

from __future__ import annotations

from typing import NamedTuple

HEAD = """
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>
#include <utime.h>
static int reads(const char *path) {
    char byte; int file = open(path, O_RDONLY);
    return file >= 0 && read(file, &byte, 1) == 1;
}
static int lists(const char *path) { return opendir(path) != 0; }
static int writes(const char *path) { return open(path, O_WRONLY | O_CREAT, 0600) >= 0; }
static void *idle(void *nothing) { pause(); return nothing; }
int main(void) {
    int through = 0;
    %s
    if (through) puts("through");
    return 0;
}
"""


class NativeAttack(NamedTuple):
    """One attack. `body` sets `through` in C; a script prints in JavaScript."""

    name: str
    body: str
    language: str = "c"

    @property
    def source(self) -> str:
        """The whole program."""
        return HEAD.replace("%s", self.body) if self.language == "c" else self.body


def _c(**bodies: str) -> list[NativeAttack]:
    return [NativeAttack(name.replace("_", " "), body) for name, body in bodies.items()]


def _js(**bodies: str) -> list[NativeAttack]:
    return [NativeAttack(f"js {name.replace('_', ' ')}", f"const fs = require('fs');\n{body}", "javascript")
            for name, body in bodies.items()]  # fmt: skip


C_ATTACKS = _c(
    fork="through = fork() >= 0;",
    vfork="pid_t p = vfork(); if (p == 0) _exit(0); through = p > 0;",
    fork_bomb="for (int n = 0; n < 20000; n++) through |= fork() >= 0;",
    clone_without_thread="through = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0) >= 0;",
    clone3="char a[88] = {0}; through = syscall(SYS_clone3, a, 88) >= 0;",
    double_fork_daemon="if (fork() == 0) { setsid(); if (fork() == 0) sleep(600); _exit(0); }",
    a_new_session="through = setsid() >= 0;",
    a_new_process_group="through = setpgid(0, 0) == 0;",
    ptrace_the_parent="through = ptrace(PTRACE_ATTACH, getppid(), 0, 0) == 0;",
    be_traced="through = ptrace(PTRACE_TRACEME, 0, 0, 0) == 0;",
    read_the_parents_memory=(
        "char b[8]; struct iovec i = {b, 8}, o = {(void *)0x400000, 8};"
        " through = process_vm_readv(getppid(), &i, 1, &o, 1, 0) > 0;"
    ),
    signal_the_parent="through = kill(getppid(), 0) == 0;",
    kill_the_parent="through = kill(getppid(), SIGKILL) == 0;",
    kill_everything="through = kill(-1, SIGKILL) == 0;",
    kill_the_group="through = kill(0, SIGCONT) == 0;",
    signal_a_thread_elsewhere="through = syscall(SYS_tgkill, getppid(), getppid(), 0) == 0;",
    walk_proc='through = lists("/proc/1") || reads("/proc/1/status");',
    read_ones_own_proc='through = reads("/proc/self/maps");',
    read_the_parents_environment=(
        'char path[64]; sprintf(path, "/proc/%d/environ", getppid()); through = reads(path);'
    ),
    read_passwords='through = reads("/etc/shadow") || reads("/etc/passwd");',
    list_the_home='through = lists("/root") || lists("/home");',
    list_what_is_temporary='through = lists("/tmp") || lists("/dev/shm");',
    write_to_what_is_temporary='through = writes("/tmp/native") || writes("/dev/shm/native");',
    write_to_the_toolchain='through = writes("/usr/bin/native") || writes("/usr/include/native.h");',
    an_inherited_descriptor=("for (int n = 3; n < 1024; n++) through |= fcntl(n, F_GETFD) >= 0;"),
    a_link_out_of_the_folder=(
        'symlink("/etc/passwd", "link"); through = reads("link"); link("/usr/bin/env", "hard");'
    ),
    out_of_the_folder='through = chdir("..") == 0 && writes("native");',
    a_device='through = mknod("memory", S_IFCHR | 0600, 0x101) == 0;',
    a_set_uid_file='int f = open("own", O_CREAT | O_WRONLY, 0700); through = fchmod(f, 04755) == 0;',
    the_mode_of_a_systems_file=(
        'struct stat a, b; int f = open("/usr/bin/env", O_RDONLY); fstat(f, &a); fchmod(f, 0777);'
        " fstat(f, &b); through = a.st_mode != b.st_mode;"
    ),
    the_mode_of_what_runs=(
        'struct stat a, b; int f = open("/proc/self/exe", O_RDONLY); fstat(f, &a); fchmod(f, 0);'
        ' fstat(f, &b); through = a.st_mode != b.st_mode || chmod("/proc/self/exe", 0) == 0;'
    ),
    a_name_for_a_temporary_file=(
        'char path[64]; int f = open("/tmp", O_TMPFILE | O_RDWR, 0600);'
        ' sprintf(path, "/proc/self/fd/%d", f);'
        ' through = linkat(AT_FDCWD, path, AT_FDCWD, "/tmp/native", AT_SYMLINK_FOLLOW) == 0;'
    ),
    timestamps='struct utimbuf old = {0, 0}; through = utime("/usr/bin", &old) == 0;',
    an_extended_attribute='open("f", O_CREAT, 0600); through = setxattr("f", "user.a", "1", 1, 0) == 0;',
    a_socket="through = socket(AF_INET, SOCK_STREAM, 0) >= 0;",
    an_abstract_socket="through = socket(AF_UNIX, SOCK_DGRAM, 0) >= 0;",
    shared_memory="through = shmget(1, 4096, IPC_CREAT | 0600) >= 0;",
    a_memory_file='through = syscall(SYS_memfd_create, "m", 0) >= 0;',
    mount_something='through = mount("none", "/box", "tmpfs", 0, 0) == 0;',
    a_user_namespace="through = unshare(CLONE_NEWUSER) == 0;",
    another_root='through = chroot(".") == 0;',
    more_privileges='through = setuid(0) == 0 && geteuid() == 0 && reads("/etc/shadow");',
    more_time_on_the_processor=(
        "struct rlimit most = {RLIM_INFINITY, RLIM_INFINITY}; through = setrlimit(RLIMIT_CPU, &most) == 0;"
    ),
    more_memory=(
        "struct rlimit most = {RLIM_INFINITY, RLIM_INFINITY};"
        " through = setrlimit(RLIMIT_DATA, &most) == 0;"
    ),
    six_thousand_threads=(
        "pthread_t t; int n = 0; while (n < 6000 && !pthread_create(&t, 0, idle, 0)) n++;"
        " through = n == 6000;"
    ),
    all_the_memory="for (int n = 0; n < 4096; n++) { char *p = malloc(1 << 20); if (!p) return 0; memset(p, 1, 1 << 20); } through = 1;",
    a_file_without_end=(
        'int f = open("big", O_CREAT | O_WRONLY, 0600); char b[65536] = {1}; signal(SIGXFSZ, SIG_IGN);'
        " for (int n = 0; n < 16384; n++) if (write(f, b, sizeof b) <= 0) return 0; through = 1;"
    ),
    a_hundred_thousand_files=(
        'char name[32]; for (int n = 0; n < 100000; n++) { sprintf(name, "f%d", n);'
        " int f = open(name, O_CREAT | O_WRONLY, 0600); if (f < 0) return 0; close(f); }"
        " through = 1;"
    ),
    deep_folders=(
        'for (int n = 0; n < 100000; n++) if (mkdir("d", 0700) || chdir("d")) return 0; through = 1;'
    ),
    output_without_end='for (;;) { puts("through"); fputs("through", stderr); }',
    stop_oneself="raise(SIGSTOP); kill(getpid(), SIGSTOP); raise(SIGKILL);",
    sleep_for_ever="pause();",
)
JS_ATTACKS = _js(
    a_child="try { require('child_process').execSync('true'); console.log('through') } catch {}",
    a_detached_child=(
        "try { const c = require('child_process').spawn('/bin/sleep', ['600'], {detached: true});"
        " c.on('error', () => {}); c.on('spawn', () => console.log('through')); c.unref() } catch {}"
    ),
    read_passwords="try { fs.readFileSync('/etc/passwd'); console.log('through') } catch {}",
    list_proc="try { fs.readdirSync('/proc'); console.log('through') } catch {}",
    a_connection=(
        "try { require('net').connect(80, '127.0.0.1').on('connect', () => console.log('through'))"
        ".on('error', () => {}) } catch {}"
    ),
    a_server=(
        "try { require('net').createServer().on('error', () => {}).listen(0,"
        " () => { console.log('through'); process.exit() }) } catch {}"
    ),
    signal_the_parent="try { process.kill(process.ppid, 0); console.log('through') } catch {}",
    workers_without_end=(
        "const { Worker } = require('worker_threads'); for (let n = 0; n < 2000; n++)"
        " try { new Worker('setInterval(() => {}, 1000)', {eval: true}).on('error', () => {}) } catch {}"
    ),
    write_outside="try { fs.writeFileSync('/tmp/native', ''); console.log('through') } catch {}",
    a_link_out="try { fs.symlinkSync('/etc', 'link'); fs.readFileSync('link/passwd'); console.log('through') } catch {}",
)
NATIVE_ATTACKS = C_ATTACKS + JS_ATTACKS
