"""SystemVerilog (IEEE 1800-2012), as far as Icarus Verilog has it."""

from __future__ import annotations

from assay.languages import Language, language

BUILD = """
if [ -f bench.sv ]; then set -- -s tb bench.sv; fi
exec iverilog -g2012 -Wall -Wno-timescale -o program "$@" main.sv
"""
"""The bench comes first, so no macro of the design's reaches it; its top module is `tb`."""


language("verilog", Language(
    title="Verilog", source="main.sv", beside="bench.sv", fences=("systemverilog", "sv"),
    definition=r"\bmodule\s+NAME\b", package="iverilog", asks_version="-V",
    compile=("/bin/sh", "-c", BUILD), run=("vvp", "-n", "program"), uses=("iverilog",),
    dialect="{title} (IEEE 1800-2012, Icarus Verilog {version})",
    hello='module hello; initial $display("hello"); endmodule',
    lazy={"empty": "module empty; endmodule",
          "echo": "module echo; integer c; initial begin c = $fgetc(32'h8000_0000);"
                  ' while (c != -1) begin $write("%c", c); c = $fgetc(32\'h8000_0000); end'
                  " end endmodule"},
))  # fmt: skip
