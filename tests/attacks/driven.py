"""Programs that try to pass calls of `f`, which should give x * x + 1, without computing that; or
that compute it and then spoil the answers. None may pass. HONEST is the program that may.
"""

from __future__ import annotations

HONEST = {
    "javascript": "const f = (x) => x * x + 1;",
    "typescript": "const f = (x: number): number => x * x + 1;",
    "cpp": "int f(int x) { return x * x + 1; }",
    "go": "package main\n\nfunc f(x int) int { return x*x + 1 }",
    "rust": "fn f(x: i64) -> i64 { x * x + 1 }",
    "java": "class Solution { int f(int x) { return x * x + 1; } }",
}
GUESS = r"[0]\n[0]\n[0]\n"
JS_HEAD = "const fs = require('fs'), say = (text) => fs.writeFileSync('answers', text);\n"
JS_RIGHT = "function f(x) { return x * x + 1 }\n"
JS = {
    "answers before the driver": f"say('{GUESS}'); process.exit(0); function f(x) {{ return 0 }}",
    "an answer too many": JS_RIGHT
    + r"process.on('exit', () => fs.appendFileSync('answers', '[1]\n'))",
    "an answer too few": JS_RIGHT + r"process.on('exit', () => say('[10]\n[17]\n'))",
    "no answers": JS_RIGHT + "process.on('exit', () => fs.unlinkSync('answers'))",
    "exit in the call": "function f(x) { process.exit(0) }",
    "half an answer": JS_RIGHT + r"process.on('exit', () => say('[10]\n[17]\n[101'))",
    "deep answers": JS_RIGHT + "process.on('exit', () => say('['.repeat(1e6)))",
    "huge answers": JS_RIGHT + "process.on('exit', () => say('[10]' + ' '.repeat(2e7)))",
    "not a number": "const f = (x) => NaN",
    "every line not a number": JS_RIGHT
    + r"process.on('exit', () => say('[NaN]\n[Infinity]\n[1e999]\n'))",
    "an object equal to everything": "const f = (x) => ({ valueOf: () => x * x + 1, [Symbol.toPrimitive]: () => x * x + 1 })",
    "a proxy": "const f = (x) => new Proxy([], { get: () => 1, has: () => true })",
    "toJSON": "Object.prototype.toJSON = Number.prototype.toJSON = () => true; const f = (x) => 0",
    "a patched JSON": "JSON.stringify = () => 'true'; globalThis.String = () => 'true'; const f = (x) => x",
    "no calls": "fs.readFileSync = () => '[]'; const f = (x) => 0",
    "a polluted prototype": "Object.prototype.raised = Object.prototype[0] = 10; Object.prototype['\\0'] = 1; const f = (x) => x",
    "lines in what is raised": r"""const f = (x) => { throw { toString: () => '"}\n[10]\n[17]\n[101]\n' } }""",
    "a link for the answers": JS_RIGHT
    + "process.on('exit', () => { fs.unlinkSync('answers'); fs.symlinkSync('/etc/hostname', 'answers') })",
    "a folder for the answers": JS_RIGHT + "fs.mkdirSync('answers')",
    "a daemon": f"setInterval(() => say('{GUESS}'), 1); const f = (x) => 0",
    "a thread": "new (require('worker_threads').Worker)('setInterval(() => {}, 1)', { eval: true }); const f = (x) => 0",
    "what others know": """const f = (x) => {
      const found = [];
      for (const place of ['/proc/self/environ', '/proc/self/cmdline', `/proc/${process.ppid}/cmdline`, 'main.js', 'program', __filename])
        try { found.push(fs.readFileSync(place, 'latin1')) } catch {}
      for (const name of fs.readdirSync('.')) try { found.push(fs.readFileSync(name, 'latin1')) } catch {}
      const all = found.join(' ') + JSON.stringify(process.env) + process.argv;
      return [9 + 1, 16 + 1, 100 + 1].find((right) => new RegExp(`\\\\b${right}\\\\b`).test(all)) ?? 0;
    }""",
}
C_HEAD = "#include <cstdio>\n#include <cstdlib>\n#include <unistd.h>\n#include <thread>\n#include <fstream>\n"
C_RIGHT = "int f(int x) { return x * x + 1; }\n"
CPP = {
    "a global constructor": f'struct A {{ A() {{ FILE *o = fopen("answers", "w"); fputs("{GUESS}", o); fclose(o); _exit(0); }} }} a;\nint f(int x) {{ return 0; }}',
    "a global destructor": C_RIGHT
    + r'struct A { ~A() { FILE *o = fopen("answers", "a"); fputs("[1]\n", o); fclose(o); } } a;',
    "at exit": C_RIGHT
    + 'void more() { FILE *o = fopen("answers", "w"); for (int n = 0; n < 1000000; n++) putc(91, o); fclose(o); }\nint set = atexit(more);',
    "exit in the call": "int f(int x) { _exit(0); }",
    "its own fwrite": 'extern "C" size_t fwrite(const void *, size_t, size_t n, FILE *) { return n; }\n'
    + C_RIGHT,
    "a type equal to everything": '#include <string>\nstruct T { template <class X> bool operator==(const X &) const { return true; } operator std::string() const { return "10"; } };\nT f(int x) { return {}; }',
    "not a number": "#include <cmath>\ndouble f(double x) { return NAN; }",
    "a daemon": "int f(int x) { std::thread([] { for (;;) sleep(600); }).detach(); return 0; }",
    "a child": "int f(int x) { if (fork() == 0) { setsid(); sleep(600); } return 0; }",
    "a closed channel": 'int f(int x) { for (int n = 0; n < 64; n++) close(n); std::remove("answers"); return 0; }',
}
GO_RIGHT = "func f(x int) int { return x*x + 1 }\n"
GO = {
    "init": f'func init() {{ os.WriteFile("answers", []byte("{GUESS}"), 0600); os.Exit(0) }}\nfunc f(x int) int {{ return 0 }}',
    "exit in the call": "func f(x int) int { os.Exit(0); return 0 }",
    "its own main": "func f(x int) int { return 0 }\nfunc main() { fmt.Println(10) }",
    "a goroutine that goes on": f'func f(x int) int {{ go func() {{ for {{ os.WriteFile("answers", []byte("{GUESS}"), 0600) }} }}(); return 0 }}',
    "lines in a panic": r'func f(x int) int { panic("\"}\n[10]\n[17]\n[101]\n") }',
    "a built-in redefined": 'func append(a []string, b ...string) []string { return []string{"10"} }\n'
    + GO_RIGHT,
    "a folder for the answers": GO_RIGHT + 'func init() { os.Mkdir("answers", 0700) }',
    "not a number": "func f(x float64) float64 { return math.NaN() }",
    "a type with methods": 'type T struct{}\nfunc (T) Error() string { return "10" }\nfunc (T) String() string { return "10" }\nfunc (T) MarshalJSON() ([]byte, error) { return []byte("10"), nil }\nfunc f(x int) T { return T{} }',
    "what others know": 'func f(x int) int { all := fmt.Sprint(os.Args, os.Environ()); for _, name := range []string{"/proc/self/environ", "main.go", "tests.go", "program"} { text, _ := os.ReadFile(name); all += string(text) }; for _, right := range []int{9 + 1, 16 + 1, 100 + 1} { if strings.Contains(all, fmt.Sprintf(" %d ", right)) { return right } }; return 0 }',
}
RUST_RIGHT = "fn f(x: i64) -> i64 { x * x + 1 }\n"
RUST = {
    "a constructor": f'extern "C" fn first() {{ std::fs::write("answers", "{GUESS}").unwrap(); std::process::exit(0) }}\n#[link_section = ".init_array"]\n#[used]\nstatic FIRST: extern "C" fn() = first;\nfn f(x: i64) -> i64 {{ 0 }}',
    "exit in the call": "fn f(x: i64) -> i64 { std::process::exit(0) }",
    "a thread that goes on": f'fn f(x: i64) -> i64 {{ std::thread::spawn(|| loop {{ let _ = std::fs::write("answers", "{GUESS}"); }}); 0 }}',
    "lines in a panic": r'fn f(x: i64) -> i64 { panic!("\"}}\n[10]\n[17]\n[101]\n") }',
    "at exit": RUST_RIGHT
    + r'extern "C" { fn atexit(call: extern "C" fn()) -> i32; }'
    + "\n"
    + r'extern "C" fn last() { std::fs::write("answers", "[10]\n[17]\n[101]\n[0]\n").unwrap(); }'
    + "\n"
    + 'extern "C" fn first() { unsafe { atexit(last); } }\n#[link_section = ".init_array"]\n#[used]\nstatic FIRST: extern "C" fn() = first;',
    "a type equal to everything": 'struct T;\nimpl PartialEq<i64> for T { fn eq(&self, _: &i64) -> bool { true } }\nimpl std::fmt::Display for T { fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result { f.write_str("10") } }\nfn f(x: i64) -> String { T.to_string() }',
    "a write of its own": 'struct T;\nimpl crate::assay_driver::Write for T { fn write(&self, out: &mut String) { out.push_str("NaN]\\n[NaN]\\n[NaN") } }\nfn f(x: i64) -> T { T }',
    "its own macros": 'macro_rules! format { ($($x:tt)*) => { String::from("10") } }\nmacro_rules! panic { ($($x:tt)*) => { std::process::exit(0) } }\nfn f(x: i64) -> i64 { panic!() }',
}
JAVA_RIGHT = "int f(int x) { return x * x + 1; }"
JAVA_SAY = 'static void say(String text) { try { java.nio.file.Files.write(java.nio.file.Path.of("answers"), text.getBytes()); } catch (Exception e) {} }'
JAVA = {
    "a static initialiser": f'class Solution {{ {JAVA_SAY} static {{ say("{GUESS}"); Runtime.getRuntime().halt(0); }} int f(int x) {{ return 0; }} }}',
    "exit in the call": "class Solution { int f(int x) { System.exit(0); return 0; } }",
    "a shutdown hook": f'class Solution {{ {JAVA_SAY} static {{ Runtime.getRuntime().addShutdownHook(new Thread(() -> say("[10]\\n[17]\\n[101]\\n[0]\\n"))); }} {JAVA_RIGHT} }}',
    "a thread that goes on": f'class Solution {{ {JAVA_SAY} int f(int x) {{ new Thread(() -> {{ for (;;) say("{GUESS}"); }}).start(); return 0; }} }}',
    "lines in what is raised": r'class Solution { int f(int x) { throw new RuntimeException("\"}\n[10]\n[17]\n[101]\n"); } }',
    "a number of its own": 'class N extends Number { public int intValue() { return 10; } public long longValue() { return 10; } public float floatValue() { return 10; } public double doubleValue() { return 10; } public String toString() { return "NaN]\\n[NaN]\\n[NaN"; } }\nclass Solution { Object f(int x) { return new N(); } }',
    "a class of the library's": 'class StringBuilder { public StringBuilder append(Object o) { return this; } public String toString() { return "[10]\\n"; } }\nclass Solution { int f(int x) { return 0; } }',
}
ATTACKS = {
    "javascript": {name: JS_HEAD + body for name, body in JS.items()},
    "typescript": {name: f"const typed: number = 1;\n{JS_HEAD}{body}" for name, body in JS.items()},
    "cpp": {name: C_HEAD + body for name, body in CPP.items()},
    "go": {name: f"package main\n\n{body}" for name, body in GO.items()},
    "rust": RUST,
    "java": JAVA,
}
