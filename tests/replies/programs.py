"""A program and a function that double a number, in ten languages, and what tries them."""

from __future__ import annotations

from typing import NamedTuple


class Programs(NamedTuple):
    """One language's."""

    program: str
    """Reads a number and prints its double, by a function `twice`."""
    function: str
    """Defines `twice` and nothing else."""
    use: str
    """Only uses `twice`."""
    draft: str
    """A `twice` that is wrong."""


PROGRAMS = {
    "python": Programs(
        "def twice(n):\n    return 2 * n\n\n\nprint(twice(int(input())))\n",
        "def twice(n):\n    return 2 * n\n",
        "print(twice(3))\n",
        "def twice(n):\n    return n + 2\n",
    ),
    "c": Programs(
        "#include <stdio.h>\n\nint twice(int n) { return 2 * n; }\n\nint main(void) {\n    int n;\n"
        '    scanf("%d", &n);\n    printf("%d\\n", twice(n));\n}\n',
        "int twice(int n) {\n    return 2 * n;\n}\n",
        'printf("%d\\n", twice(3));\n',
        "int twice(int n) {\n    return n + 2;\n}\n",
    ),
    "cpp": Programs(
        "#include <iostream>\n\nint twice(int n) { return 2 * n; }\n\nint main() {\n    int n;\n"
        '    std::cin >> n;\n    std::cout << twice(n) << "\\n";\n}\n',
        "int twice(int n) {\n    return 2 * n;\n}\n",
        "std::cout << twice(3) << std::endl;\n",
        "int twice(int n) {\n    return n + 2;\n}\n",
    ),
    "java": Programs(
        "import java.util.Scanner;\n\npublic class Main {\n    static int twice(int n) {\n"
        "        return 2 * n;\n    }\n\n    public static void main(String[] args) {\n"
        "        System.out.println(twice(new Scanner(System.in).nextInt()));\n    }\n}\n",
        "class Solution {\n    static int twice(int n) {\n        return 2 * n;\n    }\n}\n",
        "System.out.println(Solution.twice(3));\n",
        "class Solution {\n    static int twice(int n) {\n        return n + 2;\n    }\n}\n",
    ),
    "javascript": Programs(
        "const twice = (n) => 2 * n;\n"
        'console.log(twice(Number(require("fs").readFileSync(0, "utf8"))));\n',
        "function twice(n) {\n    return 2 * n;\n}\n",
        "console.log(twice(3));\n",
        "function twice(n) {\n    return n + 2;\n}\n",
    ),
    "typescript": Programs(
        "const twice = (n: number): number => 2 * n;\n"
        'console.log(twice(Number(require("fs").readFileSync(0, "utf8"))));\n',
        "function twice(n: number): number {\n    return 2 * n;\n}\n",
        "console.log(twice(3));\n",
        "const twice = (n: number): number => {\n    return n + 2;\n};\n",
    ),
    "go": Programs(
        'package main\n\nimport "fmt"\n\nfunc twice(n int) int { return 2 * n }\n\nfunc main() {\n'
        "    var n int\n    fmt.Scan(&n)\n    fmt.Println(twice(n))\n}\n",
        "package main\n\nfunc twice(n int) int {\n    return 2 * n\n}\n",
        "fmt.Println(twice(3))\n",
        "package main\n\nfunc twice(n int) int {\n    return n + 2\n}\n",
    ),
    "rust": Programs(
        "fn twice(n: i64) -> i64 { 2 * n }\n\nfn main() {\n    let mut line = String::new();\n"
        "    std::io::stdin().read_line(&mut line).unwrap();\n"
        '    println!("{}", twice(line.trim().parse().unwrap()));\n}\n',
        "fn twice(n: i64) -> i64 {\n    2 * n\n}\n",
        'println!("{}", twice(3));\n',
        "fn twice(n: i64) -> i64 {\n    n + 2\n}\n",
    ),
    "verilog": Programs(
        "module twice(input [7:0] n, output [7:0] y);\n  assign y = 2 * n;\nendmodule\n\n"
        "module main;\n  integer n, got;\n  initial begin\n"
        '    got = $fscanf(32\'h8000_0000, "%d", n);\n    $display("%0d", 2 * n);\n  end\n'
        "endmodule\n",
        "module twice(input [7:0] n, output [7:0] y);\n  assign y = 2 * n;\nendmodule\n",
        'module tb;\n  wire [7:0] y;\n  twice dut(8\'d3, y);\n  initial #1 $display("%d", y);\n'
        "endmodule\n",
        "module twice(input [7:0] n, output [7:0] y);\n  assign y = n + 2;\nendmodule\n",
    ),
    "q": Programs(
        'twice:{2*x}\n-1 string twice "J"$read0 0;\n',
        "twice:{2*x}\n",
        "show twice 3\n",
        "twice:{x+2}\n",
    ),
}
