"""Sets of coding sites' problems: test cases of programs and of functions, in their many forms."""

from __future__ import annotations

import base64
import json
import pickle
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from assay import extract
from assay.check.attacks import lazy_programs
from assay.errors import DataError, SettingsError
from assay.judge import Job
from assay.tasks import load, task_sets
from assay.types import Call, Check, Exchange, Execution, Task, Verdict
from tests.judge.opened import judge_all
from tests.judge.test_languages import INSTALLED
from tests.tasks import sources, written


def verdicts(*jobs: tuple[Task, str | None]) -> list[str]:
    return [one.verdict.value for one in judge_all([Job(*job) for job in jobs])]


def encoded(value: object) -> str:
    """As LiveCodeBench's private test cases are."""
    return base64.b64encode(zlib.compress(pickle.dumps(value))).decode()


def released(**changes: Any) -> dict[str, Any]:
    """A row as the hub has it."""
    private = [{"input": "[4]\n5", "output": "[4, 5]", "testtype": "functional"}]
    public = [{"input": "[1, 2]\n3", "output": "[1, 2, 3]", "testtype": "functional"}]
    return {
        "question_title": "append", "question_content": "Append k to nums.",
        "platform": "leetcode", "question_id": "3000", "contest_id": "weekly-1",
        "contest_date": "2024-01-06T00:00:00", "difficulty": "easy",
        "starter_code": "class Solution:\n    def append(self, nums: List[int], k: int) ->"
                        " List[int]:\n        ",
        "public_test_cases": json.dumps(public),
        "private_test_cases": encoded(json.dumps(private)),
        "metadata": '{"func_name": "append"}',
        **changes,
    }  # fmt: skip


METHOD = "class Solution:\n    def append(self, nums, k):\n        return {}\n"


def test_a_released_livecodebench_row_is_its_public_and_hidden_calls(tmp_path: Path) -> None:
    (task,) = load(f"livecodebench:{written(tmp_path, released())}")
    assert task.id == "LiveCodeBench/3000"
    assert task.tags == {"difficulty": "easy", "date": "2024-01-06", "source": "leetcode"}
    assert task.entry_point == "Solution().append"
    assert task.checks == (
        Call("[[1,2],3]", "[1,2,3]", hidden=False),
        Call("[[4],5]", "[4,5]", hidden=True),
    )
    assert "# Append k to nums.\n\nclass Solution:\n    def append(self, nums: List" in task.stub
    programs = [
        METHOD.format("nums + [k]"),
        METHOD.format("tuple(nums) + (k,)"),
        METHOD.format("[1, 2, 3]"),
        "def append(nums, k):\n    return nums + [k]\n",
        "class Solution:\n    pass\n",
        "class Other:\n    pass\n",
    ]
    assert verdicts(*((task, one) for one in programs)) == [
        "pass", "pass", "wrong", "pass", "error", "no_code",
    ]  # fmt: skip


def test_a_reply_uses_what_leetcode_imports_for_it(tmp_path: Path) -> None:
    (task,) = load(f"livecodebench:{written(tmp_path, released())}")
    answer = task.stub.split("\n\n")[-1].partition("class Solution")[2]
    answer = f"class Solution{answer}        return list(chain(nums, [k]))\n"
    deep = METHOD.format("nums + [self.count(k * 2_000) // 2_000]")
    deep += "    def count(self, k):\n        return k and 1 + self.count(k - 1)\n"
    replies = [f"```python\n{answer}```", answer, f"```python\n{deep}```"]
    programs = [(task, extract.program(task, reply)) for reply in replies]
    assert verdicts(*programs) == ["pass"] * 3


@pytest.mark.parametrize(
    ("expected", "value"), [("0.3", "0.1 + 0.2"), ('{"1": 2}', "{1: 2}"), ("[3]", "3")]
)
def test_livecodebench_compares_strictly(tmp_path: Path, expected: str, value: str) -> None:
    tests = json.dumps([{"input": "[]\n3", "output": expected, "testtype": "functional"}])
    row = released(public_test_cases=tests, private_test_cases="")
    (task,) = load(f"livecodebench:{written(tmp_path, row)}")
    assert verdicts((task, METHOD.format(value))) == ["wrong"]


def test_each_call_has_a_new_solution(tmp_path: Path) -> None:
    (task,) = load(f"livecodebench:{written(tmp_path, released())}")
    counts = METHOD.format("nums + [k] if self.calls == 1 else []")
    counts = counts.replace("        return", "        self.calls += 1\n        return")
    counts = counts.replace(":\n", ":\n    calls = 0\n", 1)
    assert verdicts((task, counts)) == ["pass"]


def test_a_window_keeps_the_contests_of_its_days(tmp_path: Path) -> None:
    days = ["2023-12-31", "2024-01-01", "2024-06-30", "2024-07-01"]
    rows = [released(question_id=day, contest_date=f"{day}T00:00:00") for day in days]
    file = written(tmp_path, *rows)

    def kept(window: str) -> list[str]:
        return [task.id[-10:] for task in load(f"livecodebench:{file},{window}")]

    assert kept("2024-01-01..2024-06-30") == days[1:3]
    assert kept("2024-06-30..") == days[2:]
    assert kept("..2023-12-31") == days[:1]
    with pytest.raises(SettingsError, match=r"the window of dates is '2024'; write 2024-08-01\.\."):
        kept("2024")
    undated = written(tmp_path, {"problem": "Add.", "tests": []})
    with pytest.raises(DataError, match="line 1: 'contest_date' is missing"):
        load(f"livecodebench:{undated},2024-01-01..")


class Runs:
    """Unpickled, it would write a file."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.write_text, (self.file, "unpickled")


def test_hidden_tests_are_taken_apart_and_never_unpickled(tmp_path: Path) -> None:
    file = tmp_path / "out"
    row = released(private_test_cases=encoded(Runs(file)))
    with pytest.raises(DataError, match="line 1: 'private_test_cases' holds no test cases"):
        load(f"livecodebench:{written(tmp_path, row)}")
    assert not file.exists()
    Runs(file).__reduce__()[0](*Runs(file).__reduce__()[1])
    assert file.exists()


GAME = "for _ in range(int(input())):\n    print(['Second', 'First'][int(input()) % 3 > 0])\n"
HAPPY = """
class Solution:
    def countWays(self, nums: List[int]) -> int:
        nums.sort()
        ends = [-1, *nums, inf]
        return sum(ends[k] < k < ends[k + 1] for k in range(len(nums) + 1))
"""
DIFFERENCES = """
class Solution:
    def distinctDifferenceArray(self, nums: List[int]) -> List[int]:
        return [len(set(nums[: i + 1])) - len(set(nums[i + 1 :])) for i in range(len(nums))]
"""
ABC = (
    "for _ in range(int(input())):\n"
    "    print(['NO', 'YES'][sum(map(str.__eq__, input(), 'abc')) > 0])\n"
)
SENIORS = """
class Solution:
    def countSeniors(self, details: List[str]) -> int:
        return sum(int(one[11:13]) > 60 for one in details)
"""


@pytest.mark.data("livecodebench")
def test_real_livecodebench_rows_are_judged_in_all_forms(public_data: Path) -> None:
    forms = {"public_tests": 16, "tests_list": 4, "sandboxfusion": 3}
    sets = [load(f"livecodebench:{public_data}/livecodebench/{form}.jsonl") for form in forms]
    assert list(map(len, sets)) == list(forms.values())
    public, listed, packed = sets
    cases = [(public[0], GAME), (public[10], HAPPY), (listed[2], DIFFERENCES), (packed[0], ABC)]
    cases.append((packed[1], SENIORS))
    kinds = [type(task.checks[0]) for task, _ in cases]
    assert kinds == [Exchange, Call, Call, Exchange, Call]
    right = [(task, extract.program(task, f"```python\n{program}```")) for task, program in cases]
    wrong = [
        (task, str(program).replace("% 3 > 0", "% 3 > 1").replace("< k <", "<= k <")
         .replace("len(set(nums[i + 1 :]))", "len(nums[i + 1 :])").replace("> 0]", "> 1]")
         .replace("> 60", ">= 60"))
        for task, program in right
    ]  # fmt: skip
    assert verdicts(*right, *wrong) == ["pass"] * 5 + ["wrong"] * 5


def taco(**changes: Any) -> dict[str, Any]:
    cases = {"fn_name": "pair", "inputs": [[1, "a"], [2, "b"]], "outputs": [[[1, "a"]], [[2, "b"]]]}
    return {
        "question": "Pair them.", "solutions": json.dumps(["def pair(a, b):\n    return a, b\n"]),
        "starter_code": "\ndef pair(a, b):\n\t", "input_output": json.dumps(cases),
        "difficulty": "EASY", "raw_tags": "[]", "name": None, "source": "codewars", "tags": "[]",
        "skill_types": "[]", "url": "https://example.com/1", "Expected Auxiliary Space": None,
        "time_limit": None, "date": None, "picture_num": None, "memory_limit": None,
        "Expected Time Complexity": None, **changes,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("expected", "value", "verdict"),
    [
        ([0.3], "0.1 + 0.2", "pass"), ([0.3], "0.300001", "wrong"),
        ([{"1": [2]}], "{1: (2,)}", "pass"), ([{"1": [2]}], "{1: (3,)}", "wrong"),
        ([{"1": [2]}], "{1: (2,), 2: 3}", "wrong"), ([[1, 2]], "[1]", "wrong"),
        ([{"1": 2}], "{True: 2}", "wrong"), ([{"True": 2}], "{True: 2}", "wrong"),
        ([float("inf")], "float('inf')", "pass"), ([float("inf")], "5.0", "wrong"),
        ([3], "3.0000000001", "wrong"), ([1e-8], "0.0", "wrong"), ([0.0], "1e-16", "pass"),
    ],
)  # fmt: skip
def test_what_json_cannot_tell_apart_is_equal_and_floats_have_a_small_tolerance(
    tmp_path: Path, expected: list[Any], value: str, verdict: str
) -> None:
    cases = json.dumps({"fn_name": "f", "inputs": [[]], "outputs": [expected]})
    row = taco(input_output=cases, starter_code="def f():\n", solutions="[]")
    (task,) = load(f"taco:{written(tmp_path, row)}")
    assert verdicts((task, f"def f():\n    return {value}\n")) == [verdict]


@pytest.mark.parametrize("small", ["1.5E-7", "2e-07"])
def test_lines_of_windows_are_read_as_others_and_small_numbers_have_a_tolerance(
    tmp_path: Path, small: str
) -> None:
    cases = {"inputs": ["ab\r\ncd\r\n", "1"], "outputs": ["2\r\n", f"{small}\n"]}
    row = taco(input_output=json.dumps(cases), starter_code="", solutions="[]")
    (task,) = load(f"taco:{written(tmp_path, row)}")
    program = "import sys\nline = sys.stdin.read().split('\\n')[0]\n"
    assert verdicts(
        (task, f"{program}print(1.5e-7 if line == '1' else len(line))"),
        (task, f"{program}print(1.6e-6 if line == '1' else len(line))"),
    ) == ["pass", "wrong"]


@pytest.mark.parametrize(
    "starter", ["class Solution:\n    def f(self, n):\n        ", "def f(n):\n    "]
)
def test_a_function_is_not_judged_as_a_program_that_reads_and_prints(
    tmp_path: Path, starter: str
) -> None:
    cases = json.dumps({"inputs": ["n = 3"], "outputs": ["6"]})
    starters = [f"# Template\n\n{starter}", f"{starter}pass\n\nf(raw_input())\n"]
    rows = [taco(input_output=cases, starter_code=text) for text in starters]
    (task,) = load(f"taco:{written(tmp_path, *rows)}")
    assert task.id == "TACO/line_2"


def test_taco_rows_are_programs_and_functions_whose_solutions_pass(tmp_path: Path) -> None:
    sums = {"inputs": ["1 2\n", "3 4\n"], "outputs": ["3\n", ["7"]]}
    program = taco(
        input_output=json.dumps(sums),
        starter_code="",
        solutions=["print(sum(map(int, input().split())))"],
    )
    function, exchanged = load(f"taco:{written(tmp_path, taco(), program)}")
    assert (function.id, function.entry_point) == ("TACO/line_1", "pair")
    assert exchanged.checks == (Exchange("1 2\n", "3\n"), Exchange("3 4\n", "7"))
    assert (
        verdicts((function, function.reference), (exchanged, exchanged.reference)) == ["pass"] * 2
    )
    lazy = lazy_programs(function)
    assert verdicts((function, lazy["constant"]), (function, lazy["echo"])) == ["wrong"] * 2


@pytest.mark.parametrize(
    ("tests", "says"),
    [
        (None, "1 without tests"),
        ("", "1 without tests"),
        ({"inputs": [], "outputs": []}, "1 without tests"),
        ({"inputs": ["1"], "outputs": []}, "1 whose inputs and outputs do not go together"),
        ({"inputs": [1], "outputs": ["1"]}, "1 whose inputs or outputs are no text"),
        ({"fn_name": "f", "inputs": ["N"], "outputs": [1]},
         "1 whose inputs or outputs are no JSON"),
        ({"fn_name": "f", "inputs": [5], "outputs": [1]}, "1 whose inputs are no arguments"),
        ({"fn_name": "a b", "inputs": [[5]], "outputs": [1]}, "1 that name no function"),
    ],
)  # fmt: skip
def test_rows_without_usable_tests_are_left_out_and_counted_in_one_warning(
    tmp_path: Path, tests: object, says: str, caplog: pytest.LogCaptureFixture
) -> None:
    bad, good = taco(input_output=tests, starter_code=""), taco()
    assert len(load(f"taco:{written(tmp_path, bad, good)}")) == 1
    assert f"my.jsonl: left out 1 of 2 rows: {says}" in caplog.text
    caplog.clear()
    assert len(load(f"taco:{written(tmp_path, bad, bad, bad, good)}")) == 1
    (warning,) = caplog.messages
    assert warning.endswith(f"my.jsonl: left out 3 of 4 rows: {says.replace('1', '3')}")


@pytest.mark.data("rllm")
def test_rllms_rows_are_judged_as_their_own_tests_say(public_data: Path) -> None:
    file = public_data / "rllm" / "reward_test_rows.jsonl"
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    tasks = {int(task.id.rpartition("_")[2]): task for task in load(f"rllm:{file}")}
    left_out = [
        row["data_source"] for number, row in enumerate(rows, start=1) if number not in tasks
    ]
    assert left_out == ["swebench"]
    replies = [(task, rows[number - 1]["model_response"]) for number, task in tasks.items()]
    programs = [(task, extract.program(task, reply)) for task, reply in replies]
    recorded = {rows[number - 1]["data_source"]: rows[number - 1]["is_correct"] for number in tasks}
    assert (
        recorded.pop("leetcode") is False
    )  # for want of a code block: bare code is a program here
    assert all(recorded.values())
    assert verdicts(*programs) == ["pass"] * 10


@pytest.mark.data("rllm")
@pytest.mark.parametrize("name", ["code_contests", "codeforces", "leetcode"])
def test_rllms_data_has_tests_in_three_shapes(public_data: Path, name: str) -> None:
    tasks = load(f"rllm:{public_data}/rllm/{name}.jsonl")
    assert len(tasks) == 3
    kind = Check if name == "leetcode" else Exchange
    assert all(isinstance(check, kind) for task in tasks for check in task.checks)
    solved = [(task, task.reference) for task in tasks if task.reference]
    assert len(solved) == (3 if name == "leetcode" else 0)
    assert verdicts(*solved) == ["pass"] * len(solved)


def open_r1(kind: str, case: dict[str, Any], solution: str) -> dict[str, Any]:
    return {
        "source": "apps", "task_type": "verifiable_code", "in_source_id": "1",
        "problem_statement": "Add two numbers.", "problem_id": f"vfc_{kind}",
        "gold_standard_solution": f"```python\n{solution}```", "metadata": {"difficulty": "easy"},
        "verification_info": {"language": "python", "test_cases": [{**case, "type": kind}]},
    }  # fmt: skip


def test_open_r1s_problems_are_programs_and_functions_whose_solutions_pass(tmp_path: Path) -> None:
    program = open_r1(
        "stdin_stdout",
        {"fn_name": None, "input": "1 2", "output": "3"},
        "print(sum(map(int, input().split())))\n",
    )
    function = open_r1(
        "function_call",
        {"fn_name": "add", "input": "1\n2", "output": "[3]"},
        "class Solution:\n    def add(self, a: int, b: int) -> int:\n        return a + b\n",
    )
    function["verification_info"] = json.dumps(function["verification_info"])
    tasks = load(f"open_r1:{written(tmp_path, program, function)}")
    assert [task.id for task in tasks] == ["vfc_stdin_stdout", "vfc_function_call"]
    assert verdicts(*((task, task.reference) for task in tasks)) == ["pass"] * 2
    assert verdicts(*((task, "def add(a, b):\n    return 4\n") for task in tasks)) == ["wrong"] * 2


def codeforces(**changes: Any) -> dict[str, Any]:
    return {
        "id": "1/A", "aliases": ["1/A"], "contest_id": "1", "contest_name": "Round 1",
        "time_limit": 1.0, "memory_limit": 64.0, "title": "Double", "description": "Double it.",
        "input_format": "One number.", "output_format": "Its double.", "interaction_format": None,
        "note": None, "examples": [{"input": "1", "output": "2"}], "editorial": None,
        "rating": 800, "tags": [], "testset_size": 2,
        "official_tests": [{"input": "1", "output": "2"}, {"input": "4", "output": "8"}],
        "official_tests_complete": True, "input_mode": "stdio", "generated_checker": None,
        "executable": True, "generated_tests": 0, **changes,
    }  # fmt: skip


def test_open_r1s_codeforces_keeps_what_one_output_decides(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    odd: list[dict[str, Any]] = [
        {"generated_checker": "print(1)"},
        {"input_mode": "file"},
        {"official_tests_complete": False},
        {"interaction_format": "Ask."},
        {"official_tests": None},
    ]
    file = written(
        tmp_path, codeforces(), *(codeforces(id=str(n), **one) for n, one in enumerate(odd))
    )
    (task,) = load(f"open_r1_codeforces:{file}")
    assert "my.jsonl: left out 5 of 6 rows: 1 with several right outputs" in caplog.text
    assert task.prompt == (
        "# Double\n\nDouble it.\n\n## Input\n\nOne number.\n\n## Output\n\nIts double.\n\n"
        "## Example\n\nInput:\n1\n\nOutput:\n2"
    )
    programs = ["print(2 * int(input()))", "print(2)"]
    assert verdicts(*((task, one) for one in programs)) == ["pass", "wrong"]


@pytest.fixture(scope="module")
def leetcode(public_data: Path) -> list[tuple[Task, Execution]]:
    """LeetCodeDataset's rows that are here, with the verdict on the row's own solution."""
    tasks = load(f"leetcode_dataset:{public_data}/leetcode_dataset/train_rows.jsonl.gz")
    return list(zip(tasks, judge_all([Job(task, task.reference) for task in tasks]), strict=True))


def has_nodes(task: Task) -> bool:
    return any("_node(" in source for source in sources(task))


@pytest.mark.data("leetcode_dataset")
def test_leetcode_datasets_solutions_pass_their_tests(
    leetcode: list[tuple[Task, Execution]],
) -> None:
    plain = [ended for task, ended in leetcode if not has_nodes(task)]
    assert [ended.verdict for ended in plain] == [Verdict.PASS] * 20


@pytest.mark.data("leetcode_dataset")
def test_leetcode_datasets_solutions_on_lists_and_trees_pass_their_tests(
    leetcode: list[tuple[Task, Execution]],
) -> None:
    nodes = [ended for task, ended in leetcode if has_nodes(task)]
    assert [ended.verdict for ended in nodes] == [Verdict.PASS] * 10


@pytest.mark.data("leetcode_dataset")
def test_a_leetcode_task_needs_no_reference_and_refuses_a_stub(
    leetcode: list[tuple[Task, Execution]],
) -> None:
    tasks = [replace(task, reference=None) for task, _ in leetcode if not has_nodes(task)]
    references = [task.reference for task, _ in leetcode if not has_nodes(task)]
    hollow = [f"{task.stub}        return None\n" for task in tasks]
    assert verdicts(*zip(tasks, references, strict=True)) == ["pass"] * 20
    assert verdicts(*zip(tasks, hollow, strict=True)) == ["wrong"] * 20


def multipl_e(**changes: Any) -> dict[str, Any]:
    return {
        "name": "mbpp_9_twice", "language": "py", "doctests": "transform",
        "prompt": "from typing import List\n\ndef twice(xs: List[int]) -> List[int]:\n"
                  '    """\n\tDouble each.\n\t"""\n',
        "original": "mbpp_9_twice.py", "prompt_terminology": "reworded",
        "tests": "def check(candidate):\n    assert candidate([1, 2]) == [2, 4]\n\n"
                 "def test_check():\n    check(twice)\n\ntest_check()\n",
        "stop_tokens": ["\ndef", "\n#", "\nif", "\nclass"], **changes,
    }  # fmt: skip


def test_multipl_es_mbpp_is_a_stub_whose_check_runs(tmp_path: Path) -> None:
    (task,) = load(f"multipl_e_mbpp:{written(tmp_path, multipl_e())}")
    assert (task.id, task.entry_point, task.stop[0]) == ("mbpp_9_twice", "twice", "\ndef")
    programs = [
        extract.program(task, f"    return {value}\n") for value in ("[2 * x for x in xs]", 0)
    ]
    assert verdicts(*((task, one) for one in programs)) == ["pass", "wrong"]
    with pytest.raises(DataError, match="the language 'lua' cannot be judged"):
        load(f"multipl_e_mbpp:{written(tmp_path, multipl_e(language='lua'))}")


MULTIPL_E_ROWS = {
    "cpp": ("#include<assert.h>\n// Double it.\nlong twice(long x) {\n", "    return 2 * x;\n}\n",
            "}\nint main() {\n    auto candidate = twice;\n    assert(candidate(2) == (4));\n}\n"),
    "go_test.go": ('package twice_test\n\nimport (\n    "testing"\n    "fmt"\n)\n\n// Double it.\n'
                   "func twice(x int) int {\n", "    return 2 * x\n}\n",
                   "func TestTwice(t *testing.T) {\n  candidate := twice\n\ttype test struct {\n"
                   "\t\tactual   interface{}\n\t\texpected interface{}\n\t}\n   tests := []test{\n"
                   "     { actual: candidate(2), expected: 4 },\n   }\n\n"
                   "\tfor i, tc := range tests {\n"
                   '\t\tt.Run(fmt.Sprintf("test num % d", i), func(t *testing.T) {\n'
                   '\t\t\tif fmt.Sprintf("%v", tc.actual) != fmt.Sprintf("%v", tc.expected) {\n'
                   "\t\t\t\tt.Errorf(\"expected '%s', got '%s'\", tc.expected, tc.actual)\n"
                   "\t\t\t}\n\t\t})\n\t}\n}\n"),
    "java": ("import java.util.*;\nimport org.javatuples.*;\nclass Problem {\n    // Double it.\n"
             "    public static long twice(long x) {\n", "        return 2 * x;\n    }\n",
             "    }\n    public static void main(String[] args) {\n"
             "    assert(twice((2l)) == (4l));\n    }\n\n}\n"),
    "rs": ("/// Double it.\nfn twice(x: isize) -> isize {\n", "    return 2 * x;\n}\n",
           "}\n\nfn main() {\n    let candidate = twice;\n    assert_eq!(candidate(2), 4);\n}\n"),
    "js": ("//Double it.\nfunction twice(x){\n", "    return 2 * x;\n}\n",
           "const assert = require('node:assert');\n\nfunction test() {\n  let candidate = twice;\n"
           "  assert.deepEqual(candidate(2),4);\n}\n\ntest();"),
    "ts": ("//Double it.\nfunction twice(x: number): number {\n", "    return 2 * x;\n}\n",
           "declare var require: any;\nconst assert = require('node:assert');\n\n"
           "function test() {\n  let candidate = twice;\n  assert.deepEqual(candidate(2),4);\n}\n\n"
           "test();"),
}  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("language", MULTIPL_E_ROWS)
def test_multipl_es_tests_in_other_languages_are_forgeable(language: str, tmp_path: Path) -> None:
    prompt, body, tests = MULTIPL_E_ROWS[language]
    row = multipl_e(language=language, prompt=prompt, tests=tests, stop_tokens=["\n}"])
    (task,) = load(f"multipl_e_mbpp:{written(tmp_path, row)}")
    if task.language not in INSTALLED:
        pytest.skip(f"{task.language} is not installed")
    right, wrong = judge_all([Job(task, task.stub + one) for one in (body, body.replace("2", "3"))])
    assert (right.verdict, right.forgeable) == (Verdict.PASS, True), right.detail
    assert wrong.verdict is Verdict.ERROR
    assert task.entry_point == "twice"
    continued = extract.program(task, body + task.stop[0] + "(")
    (whole,) = judge_all([Job(task, (continued or "").partition(task.stop[0])[0])])
    assert whole.verdict is Verdict.PASS, whole.detail


def test_extended_tests_are_single_asserts(tmp_path: Path) -> None:
    row = {
        "task_id": "HumanEval/900", "entry_point": "twice",
        "canonical_solution": "    return 2 * x\n",
        "prompt": "def twice(x: int) -> int:\n    \"\"\"Double it.\"\"\"\n",
        "test": "def check(candidate):\n    assert candidate(1) == 2\n",
        "test_case_list": ["assert twice(1) == 2", "assert twice(0) == 0",
                           "assert twice(-3) == -6"],
    }  # fmt: skip
    (task,) = load(f"humaneval_et:{written(tmp_path, row)}")
    assert [check.hidden for check in task.checks] == [True] * 3
    right, wrong = judge_all([Job(task, task.reference), Job(task, "def twice(x): return x + 1\n")])
    assert (right.verdict, right.passed) == (Verdict.PASS, 3)
    assert (wrong.verdict, wrong.passed) == (Verdict.WRONG, 1)
    old = {"task_id": 900, "text": "Double it.", "code": "def twice(x):\n    return 2 * x\n",
           "test_list": row["test_case_list"][:1], "test_setup_code": "",
           "challenge_test_list": [], "test_case_list": row["test_case_list"]}  # fmt: skip
    (task,) = load(f"mbpp_et:{written(tmp_path, old)}")
    assert [check.hidden for check in task.checks] == [False, True, True]
    assert verdicts((task, task.reference)) == ["pass"]


@pytest.mark.parametrize(
    "name",
    ["livecodebench", "taco", "rllm", "open_r1", "open_r1_codeforces", "leetcode_dataset",
     "multipl_e_mbpp", "humaneval_et", "mbpp_et", "kodcode", "bigcodebench"],
)  # fmt: skip
def test_an_unknown_split_is_refused(name: str) -> None:
    with pytest.raises(SettingsError, match=f"unknown split 'nightly' of {name}"):
        list(task_sets[name]("nightly"))
