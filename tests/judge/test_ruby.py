"""Ruby: programs that read and print, functions that are called, and those that only pretend."""

from __future__ import annotations

import re

import pytest

from assay.extract import program
from assay.judge import Job
from assay.languages import language_named
from assay.types import Call, Exchange, Execution, Task, Verdict
from tests.judge.opened import judge_all
from tests.judge.test_driven_calls import MIXED, NESTED, RAISES
from tests.judge.test_languages import INSTALLED

pytestmark = pytest.mark.skipif("ruby" not in INSTALLED, reason="needs ruby")
SUM = Task("sum", "", (Exchange("1 2\n", "3\n"), Exchange("5 6", "11")), "", language="ruby")
SQUARE = Task("square", "", tuple(Call(f"[{x}]", str(x * x + 1)) for x in (3, -4, 10)), "f",
              language="ruby")  # fmt: skip
RIGHT = "def f(x) = x * x + 1\n"
GUESS = r"[0]\n[0]\n[0]\n"
ATTACKS = {
    "exit before the driver": "exit",
    "exit in the call": "def f(x) = exit!(0)",
    "answers before the driver": f'File.write("answers", "{GUESS}"); exit!',
    "answers at exit": RIGHT + f'at_exit {{ File.write("answers", "{GUESS}") }}',
    "an answer too many": RIGHT + r'at_exit { File.write("answers", "[1]\n", mode: "a") }',
    "half an answer": RIGHT + r'at_exit { File.write("answers", "[10]\n[17]\n[101") }',
    "deep answers": RIGHT + 'at_exit { File.write("answers", "[" * 1_000_000) }',
    "no answers": RIGHT + 'at_exit { File.delete("answers") }',
    "a link for the answers": RIGHT
    + 'at_exit { File.delete("answers"); File.symlink("/etc/hostname", "answers") }',
    "a folder for the answers": RIGHT + 'Dir.mkdir("answers")',
    "the driver cut off": f'def f(x) = 1\nFile.write("answers", "{GUESS}")\n__END__',
    "code in the data": f"def f(x) = 1\nDATA\n__END__\n') }}; File.write('answers', '{GUESS}')",
    "the driver in a comment": f'{RIGHT}File.write("answers", "{GUESS}")\n=begin',
    "an object equal to everything": "class T\n  def ==(o) = true\n  def to_s = '10'\n"
    "  def to_str = '10'\nend\ndef f(x) = T.new",
    "a patched class": "class Integer\n  def to_s(*) = '10'\n  def to_json(*) = '10'\nend\n"
    "def f(x) = 0",
    "a patched JSON": "require 'json'\ndef JSON.generate(*) = '[true]'\ndef f(x) = 0",
    "not a number": "def f(x) = Float::NAN",
    "lines in what is raised": r'def f(x) = raise("\"}\n[10]\n[17]\n[101]\n")',
    "a process": "def f(x) = fork { sleep 600 }",
    "a command": "def f(x) = `echo 10`.to_i",
    "a thread": f"Thread.new {{ loop {{ File.write('answers', \"{GUESS}\") }} }}\ndef f(x) = 0",
}  # fmt: skip


def judged(task: Task, *programs: str) -> list[Execution]:
    return judge_all([Job(task, one) for one in programs], stop_early=False)


def test_a_main_of_its_own_does_not_run_beside_calls() -> None:
    mains = (f"{RIGHT}if {name} == {file}\n  puts f(gets.chomp.to_i)\nend\n" for name, file in
             (("__FILE__", "$0"), ("$PROGRAM_NAME", "__FILE__")))  # fmt: skip
    done = judged(SQUARE, *mains)
    assert all(one.proven for one in done), done


def test_a_program_that_ends_with_its_data_is_called() -> None:
    reads = 'ONE, *REST = DATA.read.split("\\n")\ndef f(x) = x * x + ONE.to_i + REST.size - 2\n'
    data = "1\n'#{x}' \\' \\n __END__\n__END__"
    programs = (f"{reads}__END__\n{data}", f"{RIGHT}__END__\n{data}\n", f"{RIGHT}__END__")
    done = judged(SQUARE, *programs, programs[0].replace("1\n", "2\n", 1))
    assert [execution.proven for execution in done] == [True, True, True, False], done
    assert done[-1].verdict is Verdict.WRONG


def test_a_program_adds_raises_and_is_told_the_error() -> None:
    adds, raises, broken = judged(
        SUM, "puts gets.split.map(&:to_i).sum", "puts [][1].size", "puts (1"
    )
    assert adds.proven
    assert (raises.verdict, broken.verdict) == (Verdict.ERROR, Verdict.ERROR)
    assert re.search(r"undefined method .size. for nil", raises.detail)
    assert "syntax error" in broken.stderr


def test_a_function_a_lambda_and_a_method_are_called() -> None:
    for source in (
        RIGHT,
        "f = ->(x) { x * x + 1 }",
        "class Solution\n  def f(x) = x * x + 1\nend",
        "module Solution\n  def self.f(x) = x * x + 1\nend",
    ):
        (execution,) = judged(SQUARE, source)
        assert execution.proven, execution
    wrong, raised, none = judged(SQUARE, "def f(x) = x", "def f(x) = nil + x", "y = 1")
    assert wrong.detail == "call 1, f(3) gives 3, not 10"
    assert re.match(r"NoMethodError: undefined method .\+. for nil", raised.detail)
    assert raised.detail.endswith(" at call 1, f(3)")
    assert "f is not defined" in none.detail


def test_values_of_all_kinds_go_and_come_back() -> None:
    mixed = Task("mixed", "", tuple(MIXED), "f", language="ruby")
    nested = Task("nested", "", (*NESTED, RAISES), "f", language="ruby")
    (both,) = judged(
        mixed,
        'def f(xs, s, m, b, z, o)\n  puts "[1]"\n'
        '  xs.map { |x| "#{x}#{s}#{b ? "y" : "n"}#{m.size}#{o ? "o" : ""}" }\nend',
    )
    assert both.proven, both
    (last,) = judged(
        nested,
        "require 'set'\n"
        'def f(x, v)\n  raise "empty \\"v\\"" if v.empty?\n  [x, v.to_enum, { 1 => :a }]\nend',
    )
    assert (last.verdict, last.passed, last.total) == (Verdict.ERROR, 6, 7), last
    assert 'empty "v" at call 7, f(1.5, [])' in last.detail


def test_no_attack_on_calls_passes() -> None:
    right, *ends = judged(SQUARE, RIGHT, *ATTACKS.values())
    assert right.proven
    found = dict(zip(ATTACKS, ends, strict=True))
    assert [name for name, one in found.items() if one.verdict is Verdict.PASS] == []
    assert [name for name, one in found.items() if not one.is_judged] == []


def test_the_program_is_cut_from_a_reply() -> None:
    reply = f"Here it is:\n```rb\n{RIGHT}```\nIt is used so:\n```ruby\nputs f(3)\n```\n"
    assert (program(SQUARE, reply) or "").startswith(RIGHT)
    ruby = language_named("rb")
    assert ruby.defines("  def self.f(x)\n", "f")
    assert ruby.defines("f = ->(x) { x }", "f")
    assert not ruby.defines("# def f(x)\nputs 'def f'\n", "f")
