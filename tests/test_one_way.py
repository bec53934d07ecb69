"""One thing, one way: the only modules that start processes, write files and frame messages. A list
may only shrink: a module that leaves its kind of call has to leave the list too.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from assay.checks import Check
from assay.judge.kinds import find
from assay.judge.kinds.kind import KINDS, AsksReference, EachCheck, InWorker, Kind

PACKAGE = Path(__file__).parent.parent / "assay"
STARTS = {
    "run", "Popen", "check_output", "check_call", "call", "fork", "forkpty", "posix_spawn",
    "posix_spawnp", "system", "popen", "execv", "execve", "execvp", "execvpe",
}  # fmt: skip
"""Functions of subprocess, os and pty that start a process or become one."""
LINES = ("readline", "readuntil", "makefile")
"""Methods by which a process reads another's lines."""
LISTS = {
    "starts processes": """
        agents/reaper engines/vllm/reaper engines/vllm/server environments/mcp_servers
        environments/program
        judge/cocotb_harness/remote judge/cocotb_harness/run judge/images judge/repository_runner
        languages/__init__ make_tasks/commits make_tasks/snippet_runner make_tasks/trees policy/gguf
        policy/gguf_header policy/template_process rewards/reward_model sandbox/attack
        sandbox/box_files sandbox/box_init sandbox/isolation sandbox/launch sandbox/namespaces
        sandbox/processes
    """,
    "writes files": """
        distributed/sharded distributed/shards engines/vllm/server files integrations/notebook
        judge/shared_files judge/repository_runner judge/repository_tree line_file
        make_tasks/commits make_tasks/packages policy/checkpoints policy/classifier policy/gguf
        progress sandbox/attack
        sandbox/box_files sandbox/box_zygote sandbox/cgroups sandbox/kernel sandbox/launch
        sandbox/namespaces trackers/jsonl train/export train/folder train/memory
        user_cache
    """,
    "packs bytes": """
        distributed/shards judge/repository_runner maths/seeds sandbox/box_zygote sandbox/landlock
        sandbox/namespaces sandbox/seccomp sandbox/sockets
    """,
    "talks in lines": "make_tasks/commits policy/classifier rewards/reward_model",
}
"""By what its modules do. New files are written by `assay.files`, new messages are framed by
`assay.sandbox.sockets`, and programs run in the sandbox. Lines are for git, and for a command of
ours that is no program's. `environments/program` starts the user's own agent,
`policy/template_process` and `policy/gguf_header` look at a stranger's model, and
`environments/mcp_servers` asks the user's Python for its path."""


def deeds(tree: ast.AST) -> Iterator[str]:
    """What a module does, of LISTS."""
    for node in ast.walk(tree):
        if isinstance(node, ast.For) and ast.unparse(node.iter).startswith("sys.stdin"):
            yield "talks in lines"
        if not isinstance(node, ast.Call):
            continue
        owner, _, name = ast.unparse(node.func).rpartition(".")
        if name.startswith("create_subprocess_") or (
            owner in ("subprocess", "os", "pty") and name in STARTS
        ) or (owner, name) == ("", "Popen"):  # fmt: skip
            yield "starts processes"
        if name in ("write_text", "write_bytes") or (name in ("open", "fdopen") and writes(node)):
            yield "writes files"
        if name in LINES:
            yield "talks in lines"
        if name in ("to_bytes", "from_bytes") or owner == "struct":
            yield "packs bytes"


def writes(call: ast.Call) -> bool:
    """Whether a call of open has a mode that writes."""
    values = [*call.args, *(word.value for word in call.keywords if word.arg == "mode")]
    modes = [it.value for it in values if isinstance(it, ast.Constant) and type(it.value) is str]
    return any(set(mode) <= set("rwaxbt+U") and set(mode) & set("wax+") for mode in modes)


@pytest.mark.parametrize("deed", LISTS)
def test_only_the_listed_modules_do_it(deed: str) -> None:
    modules = {
        file.relative_to(PACKAGE).with_suffix("").as_posix()
        for file in PACKAGE.rglob("*.py")
        if deed in deeds(ast.parse(file.read_text()))
    }
    assert modules == {*LISTS[deed].split()}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("subprocess.run(['ls'])", "starts processes"),
        ("os.fork()", "starts processes"),
        ("await asyncio.create_subprocess_exec('ls')", "starts processes"),
        ("asyncio.run(main())", None),
        ("open('file', 'w')", "writes files"),
        ("path.open(mode='ab')", "writes files"),
        ("open('file')", None),
        ("Path('wax').open('rb')", None),
        ("struct.pack('>I', 4)", "packs bytes"),
        ("len(text).to_bytes(4, 'big')", "packs bytes"),
        ("read = stream.makefile().readline", "talks in lines"),
        ("for line in sys.stdin: print(line)", "talks in lines"),
        ("for line in text.splitlines(): print(line)", None),
    ],
)
def test_a_deed_is_recognised(source: str, expected: str | None) -> None:
    assert {*deeds(ast.parse(source))} == ({expected} if expected else set())


def methods_of(tree: ast.Module) -> Iterator[tuple[str, list[str], dict[str, bool]]]:
    """Each class with its bases and methods, and whether a method does nothing but raise."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            functions = [
                part
                for part in node.body
                if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef)
            ]
            bases = [ast.unparse(base).partition("[")[0].rpartition(".")[2] for base in node.bases]
            yield (
                node.name,
                bases,
                {
                    part.name: isinstance(part.body[-1], ast.Raise) and len(part.body) <= 2
                    for part in functions  # a docstring may come first
                },
            )


def not_here(trees: Iterable[ast.Module]) -> set[str]:
    """Methods that only raise, of a class of which another one has them."""
    classes = [described for tree in trees for described in methods_of(tree)]
    theirs = {
        (base, method) for _, bases, methods in classes for base in bases
        for method, raises in methods.items() if not raises
    }  # fmt: skip
    ours = {
        (name, method) for name, _, methods in classes
        for method, raises in methods.items() if raises
    }  # fmt: skip
    return {f"{name}.{method}" for name, method in theirs & ours}


def test_no_method_only_answers_that_it_is_not_here() -> None:
    """Interfaces declare what is missing as abstract, as a Protocol, or as another interface."""
    trees = [ast.parse(file.read_text()) for file in PACKAGE.rglob("*.py")]
    assert not not_here(trees)
    raised = [
        node.name for tree in trees for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and len(node.body) <= 2
        and "raise NotImplementedError" in ast.unparse(node.body[-1])
    ]  # fmt: skip
    assert not raised


@pytest.mark.parametrize(
    ("body", "answers"),
    [
        ('"""It is not here."""\n  raise SettingsError(ONLY_JUDGES)', True),
        ("raise Error", True),
        ('"""Default."""', False),
        ("return 1", False),
        ("x = 1\n  if x: raise Error", False),
    ],
)
def test_a_method_that_answers_it_is_recognised(body: str, answers: bool) -> None:
    source = f"class A:\n def f(self):\n  {body}\nclass B(A):\n def f(self): return 2\n"
    assert not_here([ast.parse(source)]) == ({"A.f"} if answers else set())


def test_each_attribute_of_kinds_is_set_by_two_kinds_or_more() -> None:
    """What one kind sets is that kind's: a method with a default, or another object."""
    bases = (Kind, EachCheck, InWorker, AsksReference)
    names = {
        name: base
        for base in bases
        for name, value in vars(base).items()
        if not name.startswith("_") and not callable(value) and name != "is_plugin"
    }
    assert len(names) > 2
    assert find.kind_of(Check("")) in KINDS.values()
    ours = [type(kind) for kind in KINDS.values() if type(kind).__module__.startswith("assay.")]
    for name, base in names.items():
        usual = getattr(base, name)
        setters = [kind for kind in ours if getattr(kind, name, usual) != usual]
        assert len(setters) > 1, (name, setters)
