"""A harness of cocotb as CVDP's rows have them, for a module that adds and a clocked one."""

from __future__ import annotations

import shutil
from importlib.util import find_spec

import pytest

from assay.checks import Harness
from assay.types import Task

needs_cocotb = pytest.mark.skipif(
    find_spec("cocotb") is None or not shutil.which("vvp"),
    reason="needs the extra `cocotb` and iverilog",
)
MARK = "the tests' own text"
TESTS = (
    f"MARK = {MARK!r}"
    + """
import cocotb, random
from cocotb.triggers import Timer

@cocotb.test()
async def adds(dut):
    for _ in range(20):
        a, b = random.randrange(256), random.randrange(256)
        dut.a.value, dut.b.value = a, b
        await Timer(10, unit="ns")
        assert dut.sum.value == (a + b) % 256, f"{a} + {b} is not {dut.sum.value}"

@cocotb.test()
async def adds_nothing(dut):
    dut.a.value, dut.b.value = 0, 0
    await Timer(10, unit="ns")
    assert dut.sum.value == 0
"""
)
RUNNER = """
import os, pytest
from cocotb_tools.runner import get_runner

@pytest.mark.parametrize("width", [8])
def test_adder(width):
    runner = get_runner(os.getenv("SIM", "icarus"))
    runner.build(sources=os.getenv("VERILOG_SOURCES").split(), hdl_toplevel=os.getenv("TOPLEVEL"),
                 parameters={"WIDTH": width}, always=True, clean=True, waves=True,
                 timescale=("1ns", "1ns"), log_file="build.log")
    runner.test(hdl_toplevel=os.getenv("TOPLEVEL"), test_module=os.getenv("MODULE"), waves=True)
"""
COMPOSE = """services:
  direct:
    image: __OSS_SIM_IMAGE__
    volumes:
      - ./src/:/src/:ro
    env_file    : ./src/.env
    command     : pytest -s -o cache_dir=/rundir/harness/.cache /src/test_runner.py -v
    # command     : python3 /src/other.py
"""
SETTINGS = """SIM             = icarus
TOPLEVEL_LANG   = verilog
VERILOG_SOURCES = /code/rtl/adder.sv
TOPLEVEL        = adder
MODULE          = test_adder
PYTHONPATH      = /src
"""
RIGHT = """module adder #(parameter WIDTH = 4) (input [WIDTH-1:0] a, b, output [WIDTH-1:0] sum);
  assign sum = a + b;
endmodule
"""
WRONG = RIGHT.replace("a + b", "0")


def variables() -> dict[str, str]:
    pairs = (line.split("=") for line in SETTINGS.splitlines())
    return {name.strip(): value.strip() for name, value in pairs}


def harness(tests: str = TESTS, runner: str = RUNNER) -> Harness:
    files = {"src/test_adder.py": tests, "src/test_runner.py": runner}
    return Harness(files, ("rtl/adder.sv",), ("src/test_runner.py",), variables())


ADDER = Task("adder", "Write an adder.", (harness(),), "adder", "verilog", reference=RIGHT)
