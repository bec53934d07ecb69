"""The judge over HTTP, asked by real clients over real sockets."""

from __future__ import annotations

import base64
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from assay.integrations.serve import listening
from assay.tasks import load
from tests.integrations.server import (
    LONG_SECONDS,
    Server,
    children,
    descendants,
    serving,
    until,
)

needs_cpp = pytest.mark.skipif(not shutil.which("g++"), reason="needs g++")
DOUBLE: dict[str, Any] = {
    "tests": ["assert double(2) == 4", "assert double('a') == 'aa'"],
    "entry_point": "double",
}
RIGHT = "def double(x): return x + x"
WRONG = "def double(x): return 2 * x if x == 2 else x"
SPIN = "while True: pass"
JSON = {"Content-Type": "application/json"}
SUPERVISOR_ZYGOTE_AND_TWO_MORE = 4


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving("--body-mb", "0.25", "--cpu-seconds", "1", "--slots", "2") as found:
        yield found


def test_a_program_is_judged_by_the_tests_beside_it(server: Server) -> None:
    answer = server.post("/judge", {**DOUBLE, "program": RIGHT})
    assert answer.status == 200
    assert (answer.json["verdict"], answer.json["passed"], answer.json["total"]) == ("pass", 2, 2)


def test_a_wrong_program_is_a_verdict_and_not_an_error_of_the_service(server: Server) -> None:
    answer = server.post("/judge", {"task": DOUBLE, "program": WRONG})
    assert answer.status == 200
    assert (answer.json["verdict"], answer.json["passed"], answer.json["total"]) == ("wrong", 1, 2)


def test_answers_on_kept_connections_are_sent_at_once() -> None:
    with listening("127.0.0.1", 0) as listener, socket.create_connection(listener.getsockname()):
        accepted, _ = listener.accept()
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        accepted.close()


def test_a_reply_is_cut_to_its_program(server: Server) -> None:
    answer = server.post(
        "/judge", {"task": DOUBLE, "completion": f"Sure!\n```python\n{RIGHT}\n```\nDone."}
    )
    assert answer.json["verdict"] == "pass"
    assert (
        server.post("/judge", {"task": DOUBLE, "completion": "I cannot."}).json["verdict"]
        == "no_code"
    )


@pytest.mark.parametrize("unit", ["\\boxed{", "1,", "(", "$", "```\n", "for in "])
@pytest.mark.parametrize("task", [DOUBLE, {"prompt": "?", "expected_answer": "4"}])
def test_other_requests_are_answered_while_a_long_reply_is_read(
    server: Server, task: dict[str, Any], unit: str
) -> None:
    answers = []
    reply = unit * (50_000 // len(unit))
    body = {"task": task, "completion": reply}
    judging = threading.Thread(target=lambda: answers.append(server.post("/judge", body)))
    judging.start()
    longest = 0.0
    while judging.is_alive():
        start = time.monotonic()
        assert server.ask("GET", "/health").status == 200
        longest = max(longest, time.monotonic() - start)
    assert answers[0].json["verdict"] in ("no_code", "wrong", "error")
    assert longest < 1


def test_a_batch_answers_a_line_for_each_job(server: Server) -> None:
    other = {"tests": ["assert one() == 1"], "entry_point": "one"}
    jobs = [
        {"program": RIGHT},
        {"program": WRONG},
        {"task": other, "program": "def one(): return 1"},
    ]
    answer = server.post("/judge/batch", {"task": DOUBLE, "jobs": jobs})
    rows = [json.loads(line) for line in answer.text.splitlines()]
    assert {row["index"]: row["verdict"] for row in rows} == {0: "pass", 1: "wrong", 2: "pass"}


def test_what_a_program_prints_comes_back_even_where_utf_8_cannot_carry_it(server: Server) -> None:
    task = {"tests": ["assert f() == 1"], "entry_point": "f"}
    answer = server.post("/judge", {**task, "program": "def f(): raise ValueError('\\ud800')"})
    assert answer.status == 200
    assert answer.json["verdict"] == "error"


def run_code(server: Server, code: str, **more: object) -> Any:
    answer = server.post("/run_code", {"code": code, "language": "python", **more})
    assert answer.status == 200
    return answer.json


def test_run_code_answers_in_the_shape_of_sandbox_fusion(server: Server) -> None:
    answer = run_code(
        server,
        "print(input()[::-1])",
        stdin="abc\r\n",
        run_timeout=5,
        memory_limit_MB=512,
        files={},
    )
    assert answer.pop("run_result").pop("execution_time") > 0
    assert answer == {
        "status": "Success", "message": "", "compile_result": None, "executor_pod_name": None,
        "files": {}
    }  # fmt: skip
    result = run_code(server, "import sys\nprint(1)\nprint(2, file=sys.stderr)\nsys.exit(3)")
    assert result["status"] == "Failed"
    del result["run_result"]["execution_time"]
    assert result["run_result"] == {
        "status": "Finished",
        "return_code": 3,
        "stdout": "1\n",
        "stderr": "2\n",
    }


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("def f(:", "SyntaxError"),
        ("1 / 0", "ZeroDivisionError"),
        ("x = ' ' * 2**31", "MemoryError"),
    ],
)
def test_a_program_that_dies_is_a_finished_run_with_its_traceback(
    server: Server, code: str, said: str
) -> None:
    result = run_code(server, code)
    assert result["status"] == "Failed"
    assert (result["run_result"]["status"], result["run_result"]["return_code"]) == ("Finished", 1)
    assert said in result["run_result"]["stderr"]


def test_a_program_without_end_runs_out_of_time(server: Server) -> None:
    result = run_code(server, SPIN, run_timeout=1)
    assert result["status"] == "Failed"
    assert (result["run_result"]["status"], result["run_result"]["return_code"]) == (
        "TimeLimitExceeded",
        None,
    )


def test_a_program_that_sleeps_runs_out_of_time_too(server: Server) -> None:
    result = run_code(server, "import time\ntime.sleep(6)", run_timeout=1)["run_result"]
    assert (result["status"], result["return_code"]) == ("TimeLimitExceeded", None)
    assert 1 <= result["execution_time"] < 5


@pytest.mark.long
@needs_cpp
def test_run_timeout_counts_a_wait_for_a_core_that_the_programs_own_threads_take(
    server: Server,
) -> None:
    code = (
        "#include <ctime>\n#include <thread>\n#include <vector>\n#include <unistd.h>\n"
        "void spin() { while (clock() < 3 * CLOCKS_PER_SEC); }\n"
        "int main() { std::vector<std::thread> all; for (int i = 0; i < 4; i++)"
        " all.emplace_back(spin); spin(); for (auto &one : all) one.join(); usleep(900000); }"
    )
    result = run_code(server, code, language="cpp", run_timeout=2)["run_result"]
    assert result["status"] == "TimeLimitExceeded"
    assert result["execution_time"] < 2.5


@needs_cpp
@pytest.mark.parametrize(
    ("language", "code"),
    [("python", "print('x' * 1_000_000 + '!')"),
     ("python", "open('a', 'w')\nprint('x' * 1_000_000 + '!')"),
     ("cpp", "#include <iostream>\nint main() { std::cout << std::string(1000000, 'x') << '!'; }")],
)  # fmt: skip
def test_what_a_program_prints_is_answered_whole(server: Server, language: str, code: str) -> None:
    answer = run_code(server, code, language=language)
    assert answer["status"] == "Success"
    assert answer["run_result"]["stdout"].rstrip("\n") == "x" * 1_000_000 + "!"


def test_what_is_cut_says_so(server: Server) -> None:
    answer = run_code(server, "print('x' * 11_000_000)")
    assert answer["status"] == "Failed"
    assert "printed more than 10 MiB" in answer["run_result"]["stderr"]
    answer = run_code(server, "import sys\nsys.stderr.write('x' * 100_000)")
    assert answer["status"] == "Success"
    assert answer["run_result"]["stderr"].endswith("\n(standard error is cut after 65536 bytes)")


def test_a_program_copies_its_own_files_and_no_others_permissions_change(server: Server) -> None:
    code = (
        "import os, shutil\nopen('a', 'w').write('hi')\nshutil.copy('a', 'b')\n"
        "os.mkdir('d')\nshutil.copy2('a', 'd')\nshutil.copytree('d', 'e')\n"
        "before = os.stat('/usr/bin').st_mode\n"
        "try: os.chmod('/usr/bin', 0)\nexcept PermissionError: pass\n"
        "print(os.stat('/usr/bin').st_mode == before)\n"
        "print(open('b').read(), os.listdir('e'), sorted(os.listdir()))"
    )
    result = run_code(server, code)["run_result"]
    assert result["stdout"] == "True\nhi ['a'] ['a', 'b', 'd', 'e', 'program.py']\n"
    assert result["stderr"] == ""


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def test_files_lie_in_the_folder_of_a_program_and_those_it_makes_are_fetched(
    server: Server,
) -> None:
    code = (
        "import os, helper\nos.mkdir('out')\nopen('out/b', 'w').write(open('in/a').read() * 2)\n"
        "os.symlink('/usr/bin/env', 'link')\nos.symlink('/usr/bin', 'folder')\nprint(helper.X)"
    )
    files = {"in/a": encoded("hé"), "helper.py": encoded("X = 7"), "absent": None}
    fetch = ["out/b", "link", "folder/env", "absent"]
    answer = run_code(server, code, files=files, fetch_files=fetch)
    assert (answer["status"], answer["run_result"]["stdout"]) == ("Success", "7\n")
    assert answer["files"] == {"out/b": encoded("héhé")}


def test_requests_with_paths_that_name_no_file_stop_nobody_elses(server: Server) -> None:
    for number in range(25):
        files = {"a": "", f"a/{number}": ""} if number % 2 else {"x" * 256 + str(number): ""}
        answer = server.post("/run_code", {"code": "print(1)", "language": "python",
                                           "files": files})  # fmt: skip
        assert answer.status == 422, answer.text
    fetch = [str(number) for number in range(16)]
    code = "for name in range(16): open(str(name), 'w').write('x')"
    assert len(run_code(server, code, fetch_files=fetch)["files"]) == 16
    assert run_code(server, "print(7)")["run_result"]["stdout"] == "7\n"


def test_a_program_that_mentions_files_has_an_empty_folder_and_no_other_files(
    server: Server,
) -> None:
    writes = "import os\nprint(os.listdir())\nopen('a', 'w').write('x')\nprint(open('a').read())"
    assert run_code(server, writes)["run_result"]["stdout"] == "['program.py']\nx\n"
    assert "FileNotFound" in run_code(server, "open('/etc/passwd')")["run_result"]["stderr"]


def test_files_that_are_too_large_to_fetch_are_refused(server: Server) -> None:
    body = {"code": "open('a', 'w').write('x' * 300_000)", "language": "python"}
    answer = server.post("/run_code", {**body, "fetch_files": ["a"]})
    assert (answer.status, "larger than 0.25 MiB" in answer.json["error"]) == (413, True)


@needs_cpp
def test_the_compiler_has_a_result_of_its_own_and_sees_the_files(server: Server) -> None:
    code = '#include "x.h"\n#include <cstdio>\nint main() { printf("%d", X); return X; }'
    answer = run_code(server, code, language="cpp", files={"x.h": encoded("#define X 3")})
    assert (answer["status"], answer["compile_result"]["return_code"]) == ("Failed", 0)
    assert (answer["run_result"]["stdout"], answer["run_result"]["return_code"]) == ("3", 3)
    answer = run_code(server, code, language="cpp")
    assert (answer["status"], answer["run_result"]) == ("Failed", None)
    assert answer["compile_result"]["return_code"] == 1
    assert "x.h: No such file" in answer["compile_result"]["stderr"]


def jupyter(server: Server, *cells: str, **more: object) -> Any:
    answer = server.post("/run_jupyter", {"cells": cells, **more})
    assert answer.status == 200
    return answer.json


def test_cells_share_a_namespace_and_one_that_raises_ends_none_after_it(server: Server) -> None:
    answer = jupyter(
        server,
        "import os, sys\na = open('in').read()",
        "print(a, file=sys.stderr)\nos.write(1, b'raw')\na + '!'",
        "def f():\n    1 / 0\nf()",
        "open('out', 'w').write(a)\n_",
        files={"in": encoded("hi")},
        fetch_files=["out"],
    )
    assert (answer["status"], answer["driver"]["return_code"]) == ("Success", 0)
    assert answer["files"] == {"out": encoded("hi")}
    _, second, third, last = answer["cells"]
    assert second == {
        "stdout": "raw", "stderr": "hi\n", "display": [{"text/plain": "'hi!'"}], "error": []
    }  # fmt: skip
    (error,) = third["error"]
    assert (error["ename"], error["evalue"]) == ("ZeroDivisionError", "division by zero")
    assert error["traceback"][1].startswith('  File "<cell 3>", line 3')
    assert last["display"] == [{"text/plain": "'hi!'"}]


def test_a_notebook_that_runs_out_of_time_has_the_cells_that_ended(server: Server) -> None:
    answer = jupyter(server, "1", "import time\ntime.sleep(60)", total_timeout=1)
    assert (answer["status"], len(answer["cells"])) == ("Failed", 1)
    assert answer["driver"]["status"] == "TimeLimitExceeded"
    answer = jupyter(server, "import time\ntime.sleep(60)", "2", cell_timeout=0.2)
    assert answer["cells"][0]["error"][0]["ename"] == "TimeoutError"
    assert answer["cells"][1]["display"] == [{"text/plain": "2"}]


def test_cells_are_read_and_shown_as_the_blocks_of_an_interpreter_are(server: Server) -> None:
    cells = {
        "nothing of it compiles": "x = 1\nreturn",
        "its last line does not": "x = 1\nawait x",
        "lines end at no form feed": "def f():\n    '\f'\n    1 / 0\nf()",
        "frames of a deep recursion": "def g(n): return g(n + 1)\ng(0)",
        "an exception that cannot be shown": "class E(Exception):\n"
        "    def __str__(self): raise self\nraise E",
        "nothing": "# only a comment",
        "the state": "'x' in globals(), __name__",
    }
    answers = jupyter(server, *cells.values())["cells"]
    ends = dict(zip(cells, answers, strict=True))
    raised = {name: [it["ename"] for it in end["error"]] for name, end in ends.items()}
    assert raised == {
        **{name: list[str]() for name in cells}, "nothing of it compiles": ["SyntaxError"],
        "its last line does not": ["SyntaxError"], "frames of a deep recursion": ["RecursionError"],
        "lines end at no form feed": ["ZeroDivisionError"],
        "an exception that cannot be shown": ["E"],
    }  # fmt: skip
    assert ends["the state"]["display"] == [{"text/plain": "(False, '__main__')"}]
    shown = ends["lines end at no form feed"]["error"][0]["traceback"]
    assert [line for line in shown if "1 / 0" in line]
    assert len(ends["frames of a deep recursion"]["error"][0]["traceback"]) < 20


@pytest.mark.parametrize(
    "cell", ["import os; os._exit(0)", "open('.cells', 'w').write('[[\\n'); import os; os._exit(0)"]
)
def test_a_notebook_that_ends_or_forges_its_cells_has_failed(server: Server, cell: str) -> None:
    answer = jupyter(server, cell, "2")
    assert (answer["status"], answer["cells"]) == ("Failed", [])


def test_a_completion_is_judged_on_a_task_of_a_set_by_its_id(server: Server) -> None:
    prompts = server.post("/get_prompts", {"dataset": "drills:test", "offset": 1, "limit": 2}).json
    tasks = load("drills:test", limit=3)
    assert [one["id"] for one in prompts] == [task.id for task in tasks[1:]]
    assert tasks[1].prompt in prompts[0]["prompt"] or tasks[1].stub in prompts[0]["prompt"]
    fields = {"dataset": "drills:test", "id": tasks[1].id, "config": {}}
    right = server.post("/submit", {**fields, "completion": f"```python\n{tasks[1].reference}```"})
    assert (right.json["accepted"], right.json["tests"][0]["passed"]) == (True, True)
    wrong = server.post("/submit", {**fields, "completion": "```python\n1 / 0\n```"})
    assert (wrong.json["accepted"], wrong.json["tests"][0]["exec_info"]["status"]) == (
        False,
        "Failed",
    )


def evaluate(server: Server, completion: str, cases: object, **extra: object) -> Any:
    config = {"language": "python", "provided_data": {"test_cases": cases}, "extra": extra}
    answer = server.post("/common_evaluate_batch", {"completion": completion, "config": config})
    assert answer.status == 200
    return answer.json


SUMS = {
    "type": "stdin_stdout",
    "input": ["1 2", "3 4", "5 6"],
    "output": ["3", "7", "11"],
    "fn_name": None,
}


def test_a_completion_is_judged_on_what_its_program_prints(server: Server) -> None:
    code = "a, b = map(int, input().split())\nprint(a + b)\n"
    result = evaluate(server, f"```python\n{code}```", SUMS)
    assert (result["accepted"], result["extracted_code"]) == (True, code)
    assert [test["passed"] for test in result["tests"]] == [True, True, True]
    assert result["tests"][1]["test_info"] == {"input": {"stdin": "3 4"}, "output": {"stdout": "7"}}
    assert result["tests"][1]["exec_info"]["run_result"]["stdout"] == "7\n"


def test_all_cases_are_judged_where_that_is_asked_for(server: Server) -> None:
    wrong = "```python\nprint(3 if input() == '1 2' else 0)\n```"
    result = evaluate(server, wrong, SUMS, run_all_cases=True)
    assert [test["passed"] for test in result["tests"]] == [True, False, False]
    assert result["tests"][1]["exec_info"]["status"] == "Success"
    assert not result["accepted"]


def test_judging_ends_with_the_first_case_that_fails_unless_all_are_asked_for(
    server: Server,
) -> None:
    result = evaluate(server, "```python\nprint(3 if input() == '1 2' else 0)\n```", SUMS)
    assert [test["passed"] for test in result["tests"]] == [True, False]
    assert not result["accepted"]


@pytest.mark.parametrize(
    "cases",
    [{"input": [[1, 2], [3, 4]], "output": [[3], [7]]}, {"input": ["1\n2"], "output": ["3"]}],
)
@pytest.mark.parametrize(
    "code",
    ["def add(a, b): return a + b", "class Solution:\n    def add(self, a: List, b): return a + b"],
)
def test_a_function_or_a_method_is_judged_on_what_it_returns(
    server: Server, code: str, cases: dict[str, Any]
) -> None:
    cases = {**cases, "type": "function_call", "fn_name": "add"}
    assert evaluate(server, f"```python\n{code}\n```", cases)["accepted"]
    assert not evaluate(server, f"```python\n{code} + 1\n```", cases)["accepted"]


def test_our_own_shape_takes_test_cases_too(server: Server) -> None:
    sums = {"inputs": SUMS["input"], "outputs": SUMS["output"]}
    exchanges = {"exchanges": [{"stdin": "1 2", "stdout": "3.0000001"}], "checker": "floats"}
    for task, passed in ((sums, 3), (exchanges, 1)):
        answer = server.post(
            "/judge", {"task": task, "program": "print(sum(map(int, input().split())))"}
        )
        assert (answer.json["verdict"], answer.json["passed"]) == ("pass", passed)
    calls = {"entry_point": "double", "inputs": [[2], ["a"]], "expected": [4, "aa"]}
    assert server.post("/judge", {"task": calls, "program": WRONG}).json["passed"] == 1


DEEP = json.loads("[" * 300 + "]" * 300)
NAMELESS = {
    "language": "python",
    "provided_data": {"test_cases": {"type": "function_call", "input": [], "output": []}},
}
PY = {"code": "", "language": "python"}
SUBMIT = {"dataset": "drills:test", "id": "none", "completion": ""}
REFUSED: list[tuple[str, str, object, dict[str, str], int, str]] = [
    ("GET", "/nowhere", None, {}, 404, "Not Found"),
    ("GET", "/judge", None, {}, 405, "Method Not Allowed"),
    ("POST", "/health", {}, {}, 405, "Method Not Allowed"),
    ("POST", "/judge", {}, {"Content-Type": "text/plain"}, 415, "application/json"),
    ("POST", "/judge", "{", {}, 400, "not valid JSON"),
    ("POST", "/judge", b"\xff\xfe{}", {}, 400, "not valid JSON"),
    ("POST", "/judge", "[" * 100_000, {}, 400, "not valid JSON"),
    ("POST", "/judge", "[]", {}, 422, "send an object"),
    ("POST", "/judge", {**DOUBLE}, {}, 422, "'program'"),
    (
        "POST",
        "/judge",
        {**DOUBLE, "program": 3},
        {},
        422,
        "program: Input should be a valid string",
    ),
    ("POST", "/judge", {**DOUBLE, "program": "", "completion": ""}, {}, 422, "either 'program'"),
    ("POST", "/judge", {"task": [], "program": ""}, {}, 422, "task: Input should be a valid dict"),
    ("POST", "/judge", {"tests": [], "entry_point": "f", "program": ""}, {}, 422, "no tests"),
    (
        "POST",
        "/judge",
        {"tests": ["assert f("], "entry_point": "f", "program": ""},
        {},
        422,
        "no valid Python",
    ),
    ("POST", "/judge", {**DOUBLE, "language": "lua", "program": ""}, {}, 422, "'lua'"),
    (
        "POST",
        "/judge",
        {"exchanges": [{"stdin": "\ud800", "stdout": ""}], "program": ""},
        {},
        422,
        "surrogate",
    ),
    (
        "POST",
        "/judge",
        {"task": {**DOUBLE, "setup": json.loads("[" * 900 + "]" * 900)}, "program": ""},
        {},
        422,
        "",
    ),
    ("POST", "/judge/batch", {"jobs": []}, {}, 422, "at least 1 item"),
    ("POST", "/judge/batch", {"jobs": [{}] * 10_001}, {}, 422, "at most 10000 items"),
    ("POST", "/judge/batch", {"jobs": [{"program": ""}]}, {}, 422, "job 0"),
    (
        "POST",
        "/run_code",
        {"code": "", "language": "lua"},
        {},
        422,
        "the language 'lua' cannot be judged; known: answer, c, cpp",
    ),
    ("POST", "/run_code", {"language": "python"}, {}, 422, "code: Field required"),
    (
        "POST",
        "/run_code",
        {"code": "", "language": "python", "run_timeout": -1},
        {},
        422,
        "run_timeout",
    ),
    ("POST", "/run_code", {**PY, "files": {"/etc/a": ""}}, {}, 422, "below the program's own"),
    ("POST", "/run_code", {**PY, "files": {"a": "?"}}, {}, 422, "files.a: "),
    ("POST", "/run_code", {**PY, "files": {"program.py": ""}}, {}, 422, "the program's own file"),
    ("POST", "/run_code", {**PY, "fetch_files": ["a/../../b"]}, {}, 422, "below the program's own"),
    ("POST", "/run_code", {**PY, "fetch_files": ["a"] * 17}, {}, 422, "at most 16 items"),
    ("POST", "/run_code", {**PY, "args": ["-v"]}, {}, 422, "args: Value error, this field of"),
    ("POST", "/run_jupyter", {"cells": [], "kernel": "ir"}, {}, 422, "'python3'"),
    ("POST", "/get_prompts", {"dataset": "jsonl:/etc/passwd"}, {}, 422, "files are not supported"),
    ("POST", "/get_prompts", {"dataset": "mbpp:a.jsonl"}, {}, 422, "files are not supported"),
    ("POST", "/get_prompts", {"dataset": "harbor:/etc"}, {}, 422, "files are not supported"),
    ("POST", "/get_prompts", {"dataset": "rtllm:tests"}, {}, 422, "files are not supported"),
    ("POST", "/get_prompts", {"dataset": "drill"}, {}, 422, "drills"),
    ("POST", "/submit", {**SUBMIT, "id": 7}, {}, 422, "'drills:test' has no task 7"),
    (
        "POST",
        "/submit",
        {**SUBMIT, "config": {"custom_extract_logic": "x"}},
        {},
        422,
        "config.custom_extract_logic: Value error, this field of SandboxFusion's is not supported",
    ),
    (
        "POST",
        "/run_code",
        {"code": "", "language": "python", "run_timeout": float("nan")},
        {},
        422,
        "run_timeout",
    ),
    ("POST", "/common_evaluate_batch", {"completion": ""}, {}, 422, "config"),
    ("POST", "/common_evaluate_batch", {"completion": "", "config": NAMELESS}, {}, 422, "fn_name"),
    (
        "POST",
        "/judge",
        {"fn_name": "f", "inputs": [[DEEP]], "outputs": [1], "program": ""},
        {},
        422,
        "no JSON",
    ),
    (
        "POST",
        "/judge",
        {"entry_point": "f", "inputs": [[1]], "expected": [], "program": ""},
        {},
        422,
        "'expected'",
    ),
    (
        "POST",
        "/judge",
        {"tree": "/etc", "fail_to_pass": ["t.py::t"], "program": ""},
        {},
        422,
        "a folder here, which no client may name",
    ),
    (
        "POST",
        "/judge",
        {"task": {"format": "assay", "checks": [{"tree": "/etc"}]}, "program": ""},
        {},
        422,
        "a folder here, which no client may name",
    ),
    (
        "POST",
        "/judge",
        {"task": {"format": "assay", "checks": [{"test_script": "/etc/x"}]}, "program": ""},
        {},
        422,
        "a folder here, which no client may name",
    ),
]


@pytest.mark.parametrize(("method", "path", "body", "headers", "status", "why"), REFUSED)
def test_a_request_that_cannot_be_served_is_refused_with_one_line(
    server: Server,
    method: str,
    path: str,
    body: object,
    headers: dict[str, str],
    status: int,
    why: str,
) -> None:
    answer = server.ask(method, path, body, headers)
    assert answer.status == status
    assert why in answer.json["error"]
    assert "\n" not in answer.json["error"]


def test_a_body_beyond_the_limit_is_refused_whether_declared_or_not(server: Server) -> None:
    large = json.dumps({**DOUBLE, "program": RIGHT + "\n#" + "x" * 300_000})
    assert server.post("/judge", large).status == 413
    connection = server.connection()
    connection.request(
        "POST",
        "/judge",
        iter([large.encode()]),
        {"Content-Type": "application/json"},
        encode_chunked=True,
    )
    assert connection.getresponse().status == 413


def test_a_body_that_does_not_come_is_not_waited_for(server: Server) -> None:
    connection = server.connection()
    connection.putrequest("POST", "/judge")
    connection.putheader("Content-Type", "application/json")
    connection.putheader("Content-Length", "100")
    connection.endheaders(b'{"program": ')
    assert connection.getresponse().status == 408


def test_a_head_that_does_not_come_is_hung_up_on(server: Server) -> None:
    with socket.create_connection(("127.0.0.1", server.port), LONG_SECONDS) as client:
        client.sendall(b"POST /judge HTTP/1.1\r\nHost: here\r\n")
        assert client.recv(1) == b""


def test_a_request_with_two_lengths_is_refused_and_what_follows_it_is_not_read(
    server: Server,
) -> None:
    inner = b"GET /health HTTP/1.1\r\nHost: here\r\n\r\n"
    head = (b"POST /judge HTTP/1.1\r\nHost: here\r\nContent-Type: application/json\r\n"
            b"Content-Length: %d\r\nTransfer-Encoding: chunked\r\n\r\n")  # fmt: skip
    with socket.create_connection(("127.0.0.1", server.port), LONG_SECONDS) as client:
        client.sendall(head % len(inner) + b"0\r\n\r\n" + inner)
        with client.makefile("rb") as answers:
            text = answers.read()
    assert text.startswith(b"HTTP/1.1 400 ")
    assert b"not both" in text
    assert text.count(b"HTTP/1.1") == 1


def test_one_connection_serves_many_requests(server: Server) -> None:
    connection = server.connection()
    for _ in range(3):
        connection.request("GET", "/health")
        assert json.loads(connection.getresponse().read())["ok"] is True


def test_metrics_count_requests_and_verdicts(server: Server) -> None:
    def count(name: str) -> float:
        lines = server.ask("GET", "/metrics").text.splitlines()
        return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name))

    names = (
        'assay_requests_total{path="/judge",status="200"}',
        'assay_verdicts_total{verdict="wrong"}',
    )
    before = [count(name) for name in names]
    server.post("/judge", {"task": DOUBLE, "program": WRONG})
    assert [count(name) for name in names] == [number + 1 for number in before]
    assert (
        count("assay_request_seconds_count") == count('assay_request_seconds_bucket{le="+Inf"}') - 1
    )


def spin(server: Server) -> Any:
    """A client whose program runs until it is stopped."""
    connection = server.connection()
    task = {"tests": ["assert f()"], "entry_point": "f", "program": f"def f():\n    {SPIN}"}
    connection.request("POST", "/judge", json.dumps(task), {"Content-Type": "application/json"})
    until(lambda: server.running == 1)
    return connection


def test_more_requests_than_may_wait_are_told_to_come_again() -> None:
    with serving("--slots", "1", "--waiting", "0", "--cpu-seconds", "600") as server:
        busy = spin(server)
        answer = server.post("/judge", {"task": DOUBLE, "program": RIGHT})
        assert answer.status == 503
        assert int(answer.headers["Retry-After"]) > 0
        assert (
            server.post("/judge/batch", {"task": DOUBLE, "jobs": [{"program": RIGHT}]}).status
            == 503
        )
        busy.close()


@pytest.mark.long
def test_of_batches_that_come_together_those_without_a_place_are_told_to_come_again() -> None:
    sleep = f"import time\ntime.sleep(0.5)\n{RIGHT}"
    batches = [{"task": DOUBLE, "jobs": [{"program": f"{sleep}  # {n}"}]} for n in range(8)]
    with serving("--slots", "1", "--waiting", "1") as server, ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(server.post, ["/judge/batch"] * 8, batches))
        assert {answer.status for answer in answers} == {200, 503}
        judged = [answer.json for answer in answers if answer.status == 200]
        assert {line["verdict"] for line in judged} == {"pass"}
        assert server.running == 0


def test_a_task_that_is_refused_has_its_line_in_a_batch_and_ends_no_other(server: Server) -> None:
    refused = {"inputs": [[1]], "entry_point": "f", "reference": "def f(x): return 1 / 0"}
    jobs = [{"program": RIGHT}, {"task": refused, "program": ""}, {"program": f"{RIGHT} #"}]
    lines = server.post("/judge/batch", {"task": DOUBLE, "jobs": jobs}).text.splitlines()
    rows = sorted(map(json.loads, lines), key=lambda row: row["index"])
    assert [row["verdict"] for row in rows] == ["pass", "unjudged", "pass"]
    assert "its own reference fails" in rows[1]["detail"]


def test_a_client_that_hangs_up_takes_its_program_along() -> None:
    with serving("--slots", "1", "--waiting", "1", "--cpu-seconds", "600") as server:
        spin(server).close()
        assert server.post("/judge", {"task": DOUBLE, "program": RIGHT}).json["verdict"] == "pass"
        assert "timeout" not in server.ask("GET", "/metrics").text


def test_a_client_that_hangs_up_on_a_batch_takes_its_programs_along() -> None:
    jobs = [{"program": f"def double(x):\n    {SPIN}  # {number}"} for number in range(9)]
    with serving("--slots", "1", "--cpu-seconds", "600") as server:
        connection = server.connection()
        connection.request("POST", "/judge/batch", json.dumps({"task": DOUBLE, "jobs": jobs}), JSON)
        until(lambda: server.running == 1)
        connection.close()
        assert server.post("/judge", {"task": DOUBLE, "program": RIGHT}).json["verdict"] == "pass"
        assert "timeout" not in server.ask("GET", "/metrics").text


@pytest.mark.long
def test_a_client_that_reads_no_answer_is_hung_up_on() -> None:
    jobs = [{"program": f"print('x' * 60_000)\n{RIGHT}  # {number}"} for number in range(400)]
    with serving("--slots", "2", "--waiting", "0") as server, socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(("127.0.0.1", server.port))
        body = json.dumps({"task": DOUBLE, "jobs": jobs}).encode()
        head = (
            "POST /judge/batch HTTP/1.1\r\nHost: here\r\nContent-Type:"
            f" application/json\r\nContent-Length: {len(body)}"
        )
        client.sendall(head.encode() + b"\r\n\r\n" + body)
        until(lambda: server.running == 1)
        until(lambda: server.running == 0)


def test_a_service_whose_judge_is_broken_says_so() -> None:
    with serving("--slots", "1") as server:
        assert server.post("/judge", {"task": DOUBLE, "program": RIGHT}).status == 200
        (supervisor,) = children(server.process.pid)
        os.kill(supervisor, signal.SIGKILL)
        until(lambda: server.ask("GET", "/health").status == 503)
        assert server.ask("GET", "/health").json["ok"] is False
        answer = server.post("/judge", {"task": DOUBLE, "program": WRONG})
        assert (answer.status, "supervisor died" in answer.json["error"]) == (503, True)


@pytest.mark.long
@pytest.mark.parametrize("number", [2, 15])
def test_no_process_is_left_when_the_service_is_stopped_at_work(number: int) -> None:
    with serving("--slots", "1", "--cpu-seconds", "600") as server:
        busy = spin(server)
        until(lambda: len(descendants(server.process.pid)) >= SUPERVISOR_ZYGOTE_AND_TWO_MORE)
        below = descendants(server.process.pid)
        assert server.stop(number) == 0
        busy.close()
        assert not [pid for pid in below if Path(f"/proc/{pid}").exists()]


def test_a_token_is_asked_of_every_request_but_the_health_check(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret\n")
    with serving("--token-file", str(tmp_path / "token"), "--slots", "1") as server:
        body = {"task": DOUBLE, "program": RIGHT}
        assert server.post("/judge", body).status == 401
        assert server.post("/judge", body, {"Authorization": "Bearer secrets"}).status == 401
        assert (
            server.post("/judge", body, {"Authorization": "Bearer secret"}).json["verdict"]
            == "pass"
        )
        assert server.ask("GET", "/metrics").status == 401
        assert server.ask("GET", "/health").status == 200


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1"])
def test_beyond_this_machine_it_does_not_serve_without_a_token(host: str) -> None:
    command = [sys.executable, "-m", "assay", "serve", "--host", host, "--port", "0"]
    environ = {name: value for name, value in os.environ.items() if name != "ASSAY_TOKEN"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environ)
    assert done.returncode == 2
    assert "give a token" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_port_that_is_taken_is_said_in_one_line(server: Server) -> None:
    command = [sys.executable, "-m", "assay", "serve", "--port", str(server.port)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "choose another --host or --port" in done.stderr
