"""A task with a test bench, and programs that try to pass it without doing its work."""

from __future__ import annotations

from assay.types import Task, TestBench

BENCH = """`timescale 1 ps/1 ps
`define OK 12
module stimulus (input clk, output reg reset, output reg [3:0] d);
  task pause; @(negedge clk); endtask
  initial begin : drive
    reset <= 1; d <= 0;
    repeat (2) @(posedge clk);
    reset <= 0;
    repeat (40) begin @(negedge clk) d <= $random; end
    pause;
    #1 $finish;
  end
endmodule

module tb;
  reg clk = 0;
  initial forever #5 clk = ~clk;
  wire reset;
  wire [3:0] d, q;
  integer clocks = 0;
  reg tb_match = 0;
  stimulus stim1 (clk, reset, d);
  TopModule good1 (.clk, .reset, .d, .q);
  function integer plus; input integer n; plus = n + 1; endfunction
  always @(posedge clk) begin
    clocks = plus(clocks);
    $display("@SAMPLE %b %b | %b", reset, d, q);
  end
endmodule
"""
HEAD = "module TopModule (input clk, input reset, input [3:0] d, output reg [3:0] q);\n"
RIGHT = f"{HEAD}  always @(posedge clk) if (reset) q <= 0; else q <= q + d;\nendmodule\n"
TASK = Task(
    "accumulate", "Add up d.", (TestBench(BENCH, "TopModule"),), "TopModule", language="verilog",
    reference=RIGHT,
)  # fmt: skip
SELF_CHECKING = BENCH.replace(
    "#1 $finish;",
    '#1; if (tb.q === 4\'d12) $display("===== Your Design Passed =====");'
    ' else $display("===== Failed ====="); $finish;',
).replace('$display("@SAMPLE %b %b | %b", reset, d, q);', "")
"""A bench that decides itself, as RTLLM's do. A right design ends with 12."""

KNOWS_ANSWERS = BENCH.replace("TopModule good1", """
  wire [3:0] r, spare;
  Golden other (.clk, .reset, .d, .q(spare)), golden1 (.clk, .reset, .d, .q(r));
  initial begin : block reg [3:0] answer; forever @(r) answer = r; end
  function [3:0] sum; input [3:0] a, b; sum = a + b; endfunction
  TopModule good1""").replace("`define OK 12", """
`define SUM(a, b) ((a) + (b))
package answers; function [3:0] total; input [3:0] a, b; total = a + b; endfunction endpackage
module Golden (input clk, input reset, input [3:0] d, output reg [3:0] q);
  always @(posedge clk) if (reset) q <= 0; else q <= q + d;
endmodule""")  # fmt: skip
"""A bench that a design could ask for its answers."""
COUNTS = BENCH.replace('$display("@SAMPLE %b %b | %b", reset, d, q);', """
    if (reset) sum <= 0; else sum <= sum + d;
    if (!reset && q !== sum) wrong = wrong + 1;""").replace("integer clocks = 0;", """
  integer clocks = 0, wrong = 0;
  reg [3:0] sum = 0;
  final $display("Mismatches: %0d", wrong);""")  # fmt: skip
"""A bench that decides itself when the simulation ends, as VerilogEval's do."""


def in_body(text: str) -> str:
    """A design that is wrong, and has this in its body."""
    return f"{HEAD}  initial q = 0;\n  {text}\nendmodule\n"


ATTACKS = {
    "finish at once": in_body("initial $finish;"),
    "finish by a macro": "`define END $finish\n" + in_body("initial `END;"),
    "finish by a pasted macro": "`define D(x) $fin``x\n" + in_body("initial `D(ish);"),
    "finish by glued macros": "`define ISH ish\n" + in_body("initial $fin`ISH ;"),
    "finish with a space": in_body("initial $ finish;"),
    "stop": in_body("initial $stop;"),
    "fatal with status 0": in_body('initial $fatal(0, "Mismatches: 0 in 1 samples");'),
    "a printed verdict": in_body(
        'initial begin $display("Mismatches: 0 in 215 samples"); $display("All tests passed.");'
        ' $display("===== Your Design Passed ====="); $display("Test Summary: 9/9 tests passed");'
        " end"
    ),
    "printed samples": in_body('always @(posedge clk) $display("@SAMPLE %b %b | 0111", reset, d);'),
    "half a line before each sample": in_body('always @(clk) $write("@SAMPLE 0 0000 | 0000 ");'),
    "force the match": in_body("initial force tb.tb_match = 1;"),
    "force the answer": in_body("initial force tb.q = 12;"),
    "force the answer by an escaped name": in_body("initial force \\tb .q = 12;"),
    "print a verdict and finish": in_body(
        'initial begin #9 $display("===== Your Design Passed ====="); $finish; end'
    ),
    "force the inputs": in_body("initial begin force tb.d = 0; force tb.reset = 1; end"),
    "force by a macro in a comment": "`define A fo/**/rce\n" + in_body("initial `A tb.d = 0;"),
    "an assignment into the bench": in_body("initial #7 tb.tb_match = 1;"),
    "stop the clock": in_body("initial #7 tb.clk = 0;"),
    "read the answer of another instance": in_body("always @(*) q = tb.good1.q;"),
    "read the stimulus": in_body("always @(*) q = stim1.d;"),
    "read from the root": in_body("always @(*) q = $root.tb.d;"),
    "the reference's module": HEAD + "RefModule r (clk, reset, d, q); endmodule",
    "the stimulus's module": in_body("wire r; wire [3:0] e; stimulus s (clk, r, e);"),
    "a task of the bench": in_body("initial stim1.pause;"),
    "a function of the bench": in_body("initial q = plus(3);"),
    "end the stimulus": in_body("initial #9 disable stim1.drive;"),
    "end its block": in_body("initial #9 disable drive;"),
    "a final block": in_body('final begin tb.tb_match = 1; $display("Mismatches: 0"); end'),
    "a second test bench": "program tb; initial $display(0); endprogram\n" + in_body(""),
    "a bound module": "module b; endmodule\nbind tb b b1 ();\n" + in_body("b b2 ();"),
    "changed parameters": in_body("defparam tb.clocks = 1;"),
    "a program block": "program p; initial $exit; endprogram\n" + in_body(""),
    "include a file": '`include "bench.sv"\n' + in_body(""),
    "read the bench": in_body('integer f; initial begin f = $fopen("bench.sv", "r"); end'),
    "write a file": in_body('integer f; initial begin f = $fopen("program", "w"); end'),
    "read memory from a file": in_body('reg [7:0] m [0:9]; initial $readmemh("bench.sv", m);'),
    "a command": in_body('initial $system("echo Mismatches: 0");'),
    "other random numbers": in_body("integer i; initial begin i = $random; i = $random; end"),
    "a seed": in_body("integer i; initial i = $urandom(7);"),
    "arguments of the simulator": in_body('initial if ($test$plusargs("x")) q = 1;'),
    "drive the inputs": HEAD.replace("input reset", "inout reset") + "assign reset = 1; endmodule",
    "drive the clock": HEAD.replace("input clk", "output clk") + "assign clk = 0; endmodule",
    "an escaped name": in_body("initial \\tb .tb_match = 1;"),
    "an open comment": in_body("/* "),
    "finish after a comment with a carriage return": in_body("// \\\r initial $finish;"),
    "foreign code": in_body('import "DPI-C" function void f();'),
    "disable what is not there": in_body("initial disable other;"),
    "an open string": in_body('" '),
    "a loop without delay": in_body("initial forever begin q = q + 1; end"),
    "a loop of delays of 0": in_body("initial forever #0 q = ~q;"),
    "a loop of wires": in_body("wire a, b; assign a = ~b; assign b = a === 1'bx ? 0 : a;"),
    "a huge memory": in_body("reg [63:0] m [0:(1 << 28)]; integer i; initial m[1 << 28] = 1;"),
    "a huge vector": in_body("reg [(1 << 24):0] m = ~0; always @(posedge clk) m = m * m;"),
    "endless modules": in_body("m1 m ();") + "module m1; m1 m (); endmodule\n",
    "a generated million": in_body("genvar g; for (g = 0; g < 1 << 20; g = g + 1) wire [9:0] w;"),
    "endless prints": in_body('initial forever #1 $display("%080d", q);'),
    "an empty module": f"{HEAD}endmodule\n",
    "no ports": "module TopModule; endmodule\n",
    "no module": "",
    "a constant": in_body(""),
}  # fmt: skip


def taken(expression: str, more: str = "") -> str:
    """A design whose output is this."""
    head = HEAD.replace("output reg", "output")
    return f"{more}{head}  assign q = {expression};\nendmodule\n"


def summed(call: str, more: str = "") -> str:
    """A design that leaves its sum to this."""
    return f"{more}{HEAD}  always @(posedge clk) q <= reset ? 0 : {call};\nendmodule\n"


PEEKS = {
    "an instance of the bench": taken("golden1.q"),
    "one whose name the design has, too": taken("golden1.q; m m1 ()")
    + "module m; wire golden1; endmodule\n",
    "a block whose name the design has, too": taken("block.answer; m m1 ()")
    + "module m; wire block; endmodule\n",
    "the bench itself": taken("tb.r"),
    "an instance behind a form feed": taken("golden1\f.q"),
    "an escaped instance": taken("\\golden1 .q"),
    "an instance behind a macro": taken("`I(golden1).q", "`define I(x) x\n"),
    "a module": HEAD.replace("output reg", "output") + "Golden g (clk, reset, d, q); endmodule\n",
    "a function": summed("sum(q, d)"),
    "a pasted function": summed("s`UM (q, d)", "`define UM um\n"),
    "a macro": summed("`SUM(q, d)"),
    "a package": summed("total(q, d)", "import answers::total;\n"),
}
"""Designs that ask KNOWS_ANSWERS. Each passes where nothing refuses it."""
ENDINGS = {
    "an early end": in_body("initial #1 $finish;"),
    "a held reset": in_body("initial #1 force reset = 1;"),
}  # fmt: skip
"""Designs that fool COUNTS. Each passes where nothing refuses it."""
