"""Changes that leave more than files for the script that judges them: none decides but by what the
script itself runs, and such a pass is marked forgeable.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from assay.checks import TestScript
from assay.judge import Job
from assay.judge.kinds import test_script
from assay.judge.kinds.find import kind_of
from assay.judge.kinds.repository import PYTEST
from assay.sandbox.box_init import BoxSpec
from assay.sandbox.isolation import probe_isolation
from assay.tasks import load
from assay.types import Cause, Execution, Verdict
from tests.harbor_folders import harbor_folder, harbor_task
from tests.judge.opened import judge_all

pytestmark = pytest.mark.skipif(
    "namespaces" not in probe_isolation().walls, reason="no namespaces here"
)

SCRIPT = """#!/bin/bash
if python3 -m unittest discover -s /tests -p 'test_*.py'; then
  echo 1 > /logs/verifier/reward.txt
else
  echo 0 > /logs/verifier/reward.txt
fi
"""
TESTS = """
import json
import sys
import unittest

sys.path.append("/app")
from calc import add


class Sums(unittest.TestCase):
    def test_add(self):
        self.assertEqual(json.loads("[3]"), [add(1, 2)])
"""
WRONG, RIGHT = "def add(a, b):\n    return a - b\n", "def add(a, b):\n    return a + b\n"
FILES = {
    "tests/total.py": None,
    "tests/test_sum.py": TESTS,
    "environment/numbers.txt": None,
    "environment/calc.py": WRONG,
    "solution/solve.sh": "sed -i 's/a - b/a + b/' calc.py\n",
    "solution/right.txt": None,
}


def judged(folder: Path, *programs: str, **files: str | None) -> list[Execution]:
    task = harbor_task(folder, SCRIPT, **{**FILES, **files})
    return judge_all([Job(task, program) for program in programs], stop_early=False)


def test_the_solution_passes_and_nothing_does_not(tmp_path: Path) -> None:
    right, none = judged(tmp_path, FILES["solution/solve.sh"] or "", "")
    assert (right.verdict, right.forgeable, none.verdict) == (Verdict.PASS, True, Verdict.WRONG)


REWARD = "echo 1 > /logs/verifier/reward.txt"
SHADOW = "import os; open('/logs/verifier/reward.txt', 'w').write('1'); os._exit(0)"
ATTACKS = {
    "a reward": f"mkdir -p /logs/verifier; {REWARD}; cp -r /logs .",
    "other tests": "mkdir -p /tests; echo 'true' > /tests/test.sh; cp /tests/* . ; mkdir tests;"
    f" echo '{REWARD}' > tests/test.sh",
    "links": "ln -s /logs/verifier/reward.txt reward.txt; ln -s / root; ln -s /tests tests;"
    " ln -s /logs logs",
    "links in the place of folders": "mkdir logs; ln -s /app/logs /logs/verifier || true;"
    " echo 1 > logs/reward.txt",
    "pipes": "mkfifo reward.txt test.sh; rm calc.py; mkfifo calc.py",
    "a shell's settings": f"for f in ~/.bashrc ~/.profile ~/.bash_env .bashrc .profile; do"
    f" echo '{REWARD}; exit' > $f; done; export BASH_ENV=~/.bashrc ENV=~/.profile",
    "programs in PATH": "for f in bash python3 python env test; do echo '#!/bin/sh' > $f;"
    " chmod +x $f; cp $f ~; done; mkdir -p ~/bin ~/.local/bin; cp python3 ~/.local/bin",
    "Python's own": f'echo "{SHADOW}" | tee sitecustomize.py usercustomize.py unittest.py json.py'
    " argparse.py > __main__.py; mkdir -p ~/.local/lib/python3.11/site-packages;"
    " cp sitecustomize.py ~/.local/lib/python3.11/site-packages; cp json.py all.pth",
    "packages": f'for m in unittest json re; do mkdir $m; echo "{SHADOW}" > $m/__init__.py; done',
    "git": "git init -q; git config core.fsmonitor 'sh x'; echo '* filter=x' > .gitattributes;"
    f" git config filter.x.smudge '{REWARD}'; echo '{REWARD}' > x; cp x .git/hooks/post-checkout",
    "processes": f"(setsid sh -c 'while sleep 0.1; do {REWARD}; done') >/dev/null 2>&1 &",
    "a daemon of shared memory": "echo 1 > /dev/shm/reward.txt; ln -s /dev/shm/reward.txt r",
}


@pytest.mark.parametrize("what", ATTACKS)
def test_nothing_that_an_agent_leaves_decides(what: str, tmp_path: Path) -> None:
    (execution,) = judged(tmp_path, f"{ATTACKS[what]}\ntrue\n")
    assert execution.verdict in (Verdict.WRONG, Verdict.ERROR), execution.output
    assert execution.cause is Cause.PROGRAM


def test_odd_texts_are_programs_that_fail(tmp_path: Path) -> None:
    texts = "\ud800", "--- a/\ud800\n+++ b/x\n", "\0", "{}", "[" * 9999, "exit 3", "\udcff"
    for execution in judged(tmp_path, *texts):
        assert execution.verdict in (Verdict.WRONG, Verdict.COMPILE), execution.detail
        assert execution.cause is Cause.PROGRAM


THROUGH_A_LINK = """diff --git a/l b/l
new file mode 120000
--- /dev/null
+++ b/l
@@ -0,0 +1 @@
+/logs
\\ No newline at end of file
diff --git a/PATH b/PATH
new file mode 100644
--- /dev/null
+++ b/PATH
@@ -0,0 +1 @@
+1
"""


@pytest.mark.parametrize(
    "path", ["l/reward.txt", "../logs/verifier/reward.txt", "/logs/verifier/reward.txt",
             "../tests/test.sh", ".git/config"],
)  # fmt: skip
def test_a_diff_reaches_no_file_beside_the_work_folder(path: str, tmp_path: Path) -> None:
    script = f"ls -AR /logs; cat /logs/reward.txt\n{SCRIPT}"
    task = harbor_task(tmp_path, script, **FILES)
    (execution,) = judge_all([Job(task, THROUGH_A_LINK.replace("PATH", path))])
    assert execution.verdict in (Verdict.WRONG, Verdict.COMPILE)
    assert "reward" not in execution.output.partition("artifacts:")[0]


def test_the_cheats_that_assay_check_tries_fail(tmp_path: Path) -> None:
    task = harbor_task(tmp_path, SCRIPT, **FILES)
    (check,) = task.checks
    cheats = kind_of(check).cheats(check, task)
    executions = judge_all([Job(task, cheat) for cheat in cheats.values()], stop_early=False)
    assert len(cheats) == 11
    assert {name: run.verdict for name, run in zip(cheats, executions, strict=True)} == (
        dict.fromkeys(cheats, Verdict.WRONG)
    )


def test_a_module_of_a_right_change_may_have_a_name_of_pythons(tmp_path: Path) -> None:
    """Only what the solution does not make is taken out."""
    solve = "cp calc.py queue.py; echo 'from queue import add' > calc.py; sed -i s/-/+/ queue.py\n"
    (execution,) = judged(tmp_path, f"{solve}: as the solution\n", **{"solution/solve.sh": solve})
    assert execution.verdict is Verdict.PASS


def test_a_name_of_pythons_is_taken_out_where_it_is_a_new_module_alone(tmp_path: Path) -> None:
    """A script, a text and a module that was there before are a program's work."""
    script = SCRIPT.replace("if ", "ls /app; if ")
    task = harbor_task(
        tmp_path, script, **{**FILES, "environment/queue.py": WRONG,
                             "environment/calc.py": "from queue import add\n"},
    )  # fmt: skip
    names = "touch types.ts secrets.json select.sh re.txt json.py enum.so; mkdir csv code;"
    names += " touch csv/a.py code/__init__.py"
    for execution in judge_all([Job(task, f"sed -i s/-/+/ queue.py\n{names}\n")]):
        assert execution.verdict is Verdict.PASS
        left = execution.output.partition("\n.")[0].split()
        assert {"types.ts", "secrets.json", "select.sh", "re.txt", "csv"} < {*left}
        assert not {"json.py", "enum.so"} & {*left}


WITH_PYTEST = """cp /tests/test_sum.py /app
if python3 -m pytest -q -p no:cacheprovider test_sum.py; then
  echo 1 > /logs/verifier/reward.txt
else
  echo 0 > /logs/verifier/reward.txt
fi
"""
ENDS = "echo 'import os; os._exit(0)' >"
COLLECTS = "addopts = --collect-only"
AS_LIST = 'addopts = ["--collect-only"]'
PLUGIN = (
    "mkdir e-1.END; cd e-1.END; printf 'Metadata-Version: 2.1\\nName: e\\nVersion: 1\\n' | tee"
    " METADATA > PKG-INFO; printf '[pytest11]\\ne = e\\n' > entry_points.txt; cd ..;"
    f" {ENDS} e.py"
)
OF_PYTEST = {
    "nothing": "true",
    "a plug-in": PLUGIN.replace("END", "dist-info"),
    "metadata of an egg": PLUGIN.replace("END", "egg-info"),
    "in capitals": PLUGIN.replace("END", "DIST-INFO"),
    "pytest.toml": f"printf '[pytest]\\n{AS_LIST}\\n' | tee pytest.toml > .pytest.toml",
    "tox.ini": f"printf '[pytest]\\n{COLLECTS}\\n' > tox.ini",
    "setup.cfg": f"printf '[tool:pytest]\\n{COLLECTS}\\n' > setup.cfg",
    "pyproject.toml": f"printf '[tool.pytest.ini_options]\\n{AS_LIST}\\n' > pyproject.toml",
    "a word in other characters":
        f"printf '[tool.\"p\\\\u0079test\".ini_options]\\n{AS_LIST}\\n' > pyproject.toml",
    "a package of Python's": f"mkdir sitecustomize; {ENDS} sitecustomize/__init__.py",
    "compiled": f"{ENDS} s.py; python3 -c 'import py_compile as p;"
    ' p.compile("s.py", "usercustomize.pyc"); p.compile("s.py", "pytest.pyc")\'',
    "a link": f"mkdir mine; {ENDS} mine/__init__.py; ln -s mine pytest; ln -s mine sitecustomize",
}  # fmt: skip


@pytest.mark.parametrize("what", OF_PYTEST)
def test_nothing_that_pytest_finds_by_itself_decides(what: str, tmp_path: Path) -> None:
    packages = Path(pytest.__file__).parents[1]
    shown = tuple(str(packages / name) for name in PYTEST if (packages / name).exists())
    settings = f'[environment.env]\nPYTHONPATH = "/app:{packages}"\n'
    test = "from calc import add\n\n\ndef test_add():\n    assert add(1, 2) == 3\n"
    task = harbor_task(
        tmp_path, WITH_PYTEST, **{**FILES, "tests/test_sum.py": test, "task.toml": settings}
    )
    check = task.checks[0]
    assert isinstance(check, TestScript)
    task = replace(task, checks=(replace(check, roots=shown),))
    jobs = [Job(task, "sed -i s/-/+/ calc.py\n"), Job(task, f"{OF_PYTEST[what]}\n")]
    verdicts = [execution.verdict for execution in judge_all(jobs)]
    assert verdicts == [Verdict.PASS, Verdict.WRONG]


def test_settings_of_other_tools_stay(tmp_path: Path) -> None:
    script = f"ls -A /app\n{SCRIPT}"
    files = "printf '[project]\\nname = \"calc\"\\n' > pyproject.toml; touch setup.cfg\n"
    task = harbor_task(tmp_path, script, **FILES)
    (execution,) = judge_all([Job(task, files)])
    assert {"pyproject.toml", "setup.cfg"} < {*execution.output.split()}


DEEP = "p=$(printf 'd/%.0s' $(seq 1900)); mkdir -p $p; cd $p; touch {1..300}\n"


def test_a_program_whose_files_take_too_long_is_out_of_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It chose them, so the machine has not failed; a solution's are the task's."""
    monkeypatch.setattr("assay.sandbox.box.FILE_SECONDS", 2.0)
    (late,) = judged(tmp_path, DEEP)
    assert (late.verdict, late.cause) == (Verdict.TIMEOUT, Cause.LIMIT)
    slow, wrong = judged(tmp_path, DEEP, "", **{"solution/solve.sh": DEEP})
    assert (slow.verdict, slow.cause) == (Verdict.ERROR, Cause.PROGRAM)
    assert (wrong.verdict, wrong.cause) == (Verdict.UNJUDGED, Cause.REFERENCE)


def test_a_program_that_leaves_no_room_for_files_has_failed_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever number of files it leaves to the tests."""
    usual = test_script.test_spec_of

    async def small(check: TestScript) -> BoxSpec:
        return (await usual(check))._replace(files=80)

    monkeypatch.setattr(test_script, "test_spec_of", small)
    without: dict[str, str | None] = {"solution/solve.sh": None, "solution/right.txt": None}
    (task,) = load(f"harbor:{harbor_folder(tmp_path, **without)}")
    head = "diff --git a/fN b/fN\nnew file mode 100644\nindex 0000000..e69de29\n"
    diffs = ["".join(head.replace("N", str(at)) for at in range(most)) for most in range(60)]
    verdicts = [run.verdict for run in judge_all([Job(task, diff) for diff in diffs])]
    assert Verdict.INFRA not in verdicts
    assert (verdicts[0], verdicts[-1]) == (Verdict.WRONG, Verdict.COMPILE)


RUN_BY_TESTS = {
    "a full reward": ("open('/logs/verifier/reward.txt', 'w').write('1' * 10**7); os.kill("
                      "os.getppid(), 9)", Verdict.ERROR),
    "a pipe": ("os.mkfifo('/logs/verifier/reward.txt')", Verdict.TIMEOUT),
    "a link to its own file": (
        "os.symlink('/app/r', '/logs/verifier/reward.txt'); open('/app/r', 'w').write('1')",
        Verdict.WRONG),
    "a killed script": (
        "open('/logs/verifier/reward.txt', 'w').write('1'); os.kill(os.getppid(), 9)",
        Verdict.ERROR),
    "a stopped script": ("os.kill(os.getppid(), 19)", Verdict.ERROR),
}  # fmt: skip


@pytest.mark.parametrize("what", RUN_BY_TESTS)
def test_what_the_tests_run_cannot_break_the_judge(what: str, tmp_path: Path) -> None:
    attack, verdict = RUN_BY_TESTS[what]
    files = {"task.toml": "[verifier]\ntimeout_sec = 3.0\n"}
    (execution,) = judged(
        tmp_path, f"cat > calc.py <<'E'\nimport os\n{attack}\n{WRONG}E\n", **files
    )
    assert execution.verdict is verdict, execution


def test_a_full_disk_is_no_failure_of_the_machine(tmp_path: Path) -> None:
    fills = "try:\n    open('/tmp/x', 'wb').truncate(1 << 40)\nexcept OSError:\n    pass\n"
    fills += "import os\nos.system('cat /dev/zero > /tmp/x')"
    (execution,) = judged(tmp_path, f"cat > calc.py <<'E'\n{fills}\n{WRONG}E\n")
    assert execution.is_judged
    assert execution.verdict is not Verdict.PASS


FORGERIES = {
    "an equal object": "class X:\n    __eq__ = lambda *_: True\n"
    "    __hash__ = None\ndef add(a, b):\n    return X()",
    "changed tests": "import unittest\nunittest.TestCase.run = lambda *_: None",
    "a reward beside": "open('/logs/verifier/reward.json', 'w').write('{\"reward\": 1}')",
    "a process that writes last": "import os, time\nif not os.fork():\n    os.setsid()\n"
    "    while True:\n        os.system('echo 1 > /tmp/r; mv /tmp/r /logs/verifier/reward.txt')",
}


@pytest.mark.parametrize("what", FORGERIES)
def test_what_the_tests_run_can_forge_a_pass_and_it_is_marked(what: str, tmp_path: Path) -> None:
    forged, right = f"cat > calc.py <<'E'\n{FORGERIES[what]}\nE\n", "sed -i 's/-/+/' calc.py\n"
    for execution in judged(tmp_path, forged, right):
        if execution.verdict is Verdict.PASS:
            assert (execution.forgeable, execution.proven) == (True, False)
    assert execution.verdict is Verdict.PASS
