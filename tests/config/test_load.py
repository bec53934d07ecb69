"""Settings files: bases, stages, overrides, and mistakes answered in one line."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import tomli_w
from hypothesis import example, given
from hypothesis import settings as examples
from hypothesis import strategies as st

from assay.algorithms import algorithms
from assay.config.load_settings import dump, load_evaluation, load_plan, merge, parse_overrides
from assay.config.messages import OTHER_NAMES, all_keys
from assay.config.sections import PolicySettings, RunSettings
from assay.errors import SettingsError

MINIMAL = """
steps = 3
algorithm.name = "grpo"
optimizer.lr = 1e-3
tasks.train = "drills:train"
"""


def write(folder: Path, text: str, name: str = "run.toml") -> Path:
    file = folder / name
    file.write_text(text)
    return file


def test_a_file_without_stages_is_one_stage_named_after_its_algorithm(tmp_path: Path) -> None:
    plan = load_plan(write(tmp_path, MINIMAL))
    assert [settings.stage for settings in plan.stages] == ["grpo"]
    assert plan.starts_anew == (True,)


def test_stages_share_the_common_tables_and_go_on_from_one_another(tmp_path: Path) -> None:
    text = (
        MINIMAL + '[stages.sft]\nalgorithm.name = "sft"\nsteps ='
        ' 9\n[stages.grpo]\n[stages.again.policy]\nmodel = "x"\n'
    )
    plan = load_plan(write(tmp_path, text))
    assert [(s.stage, s.steps, s.algorithm["name"]) for s in plan.stages] == [
        ("sft", 9, "sft"), ("grpo", 3, "grpo"), ("again", 3, "grpo"),
    ]  # fmt: skip
    assert plan.starts_anew == (True, False, True)


def test_a_file_takes_over_what_its_base_says_and_changes_what_it_says_itself(
    tmp_path: Path,
) -> None:
    write(tmp_path, MINIMAL + "seed = 4\n[rollout]\ngroup_size = 2\nmax_tokens = 7\n", "base.toml")
    (tmp_path / "deeper").mkdir()
    file = write(tmp_path / "deeper", 'base = "../base.toml"\n[rollout]\ngroup_size = 16\n')
    settings = load_plan(file).stages[0]
    assert (settings.seed, settings.rollout.group_size, settings.rollout.max_tokens) == (4, 16, 7)


def test_a_file_that_is_its_own_base_is_refused(tmp_path: Path) -> None:
    write(tmp_path, 'base = "b.toml"', "a.toml")
    with pytest.raises(SettingsError, match="its own base"):
        load_plan(write(tmp_path, 'base = "a.toml"', "b.toml"))


def test_overrides_reach_every_stage_or_the_one_they_name(tmp_path: Path) -> None:
    file = write(tmp_path, MINIMAL + "[stages.a]\nsteps = 5\n[stages.b]\n")
    words = ["--steps", "7", "--stages.b.steps=8", "--policy.lora.rank", "4", "--name", "mine"]
    plan = load_plan(file, words)
    assert [settings.steps for settings in plan.stages] == [7, 8]
    assert [settings.policy.lora.rank for settings in plan.stages if settings.policy.lora] == [4, 4]
    assert plan.stages[0].name == "mine"


def test_override_values_are_toml_or_else_plain_text() -> None:
    words = ["--a.b", "1e-4", "--a.c=true", "--d", "drills:train", "--e", "[1, 2]"]
    changes = list(parse_overrides(words))
    table = {"a": {"b": 1e-4, "c": True}, "d": "drills:train", "e": [1, 2]}
    assert merge(*(change.table for change in changes)) == table
    assert [change.words for change in changes][:2] == ["--a.b 1e-4", "--a.c=true"]


def test_of_two_overrides_of_a_setting_the_last_one_counts(tmp_path: Path) -> None:
    words = ["--steps", "7", "--policy.lora", "{ rank = 2 }", "--steps=8", "--policy.lora.rank=4"]
    (settings,) = load_plan(write(tmp_path, MINIMAL), words).stages
    assert settings.policy.lora
    assert (settings.steps, settings.policy.lora.rank) == (8, 4)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--steps"], "lacks its value"),
        (["steps"], "unexpected argument 'steps'"),
    ],
)
def test_malformed_overrides_are_refused(words: list[str], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        list(parse_overrides(words))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("optimizer.lrr = 1", "unknown setting 'optimizer.lrr'; did you mean 'optimizer.lr'?"),
        ("policy.lora.rnk = 1", "did you mean 'policy.lora.rank'?"),
        ("evaluate.task = 'x'\nevaluate.tasks = 'y'", "did you mean 'evaluate.tasks'?"),
        ("stepz = 1", "did you mean 'steps'?"),
        ("rollout.group_size = 0", "'rollout.group_size' = 0 must be greater than 0"),
        ("policy.dtype = 'float8'", "'policy.dtype' = 'float8'"),
        ("epochs = 2", "write either `steps` or `epochs`"),
        ("name = '../x'", "'name' = '../x'"),
    ],
)
def test_a_wrong_setting_is_named_with_its_file_and_a_hint(
    tmp_path: Path, line: str, message: str
) -> None:
    file = write(tmp_path, line + "\n" + MINIMAL)
    with pytest.raises(SettingsError) as caught:
        load_plan(file)
    assert message in str(caught.value)
    assert str(file) in str(caught.value)
    assert "\n" not in str(caught.value)


def refusal(file: Path, words: list[str] | None = None) -> str:
    with pytest.raises(SettingsError) as caught:
        load_plan(file, words or [])
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            'algorithm = "grpo"',
            "setting 'algorithm' = 'grpo' is no table; write its keys, such as 'algorithm.name'",
        ),
        (
            "[stages]\nsft = 3",
            ("setting 'stages.sft' = 3 is no table; write its keys, such as 'stages.sft.steps'"),
        ),
        (
            "stages = 3",
            "setting 'stages' = 3 is no table; write its keys, such as 'stages.sft.steps'",
        ),
        ("[stages]", "`stages` is empty"),
        (
            'policy = "tiny"',
            "setting 'policy' = 'tiny' is no table; write its keys, such as 'policy.model'",
        ),
        ("policy.lora = true", "such as 'policy.lora.rank'"),
        ("optimizer = 1e-3", "such as 'optimizer.lr'"),
        ('rewards = "tests"', "such as 'rewards.tests.weight'"),
        ("rewards.tests = 1", "such as 'rewards.tests.weight'"),
        ("stages.a.rollout = 8", "such as 'stages.a.rollout.tasks_per_step'"),
        ("base = 3", "`base` = 3 must be a path in quotes"),
        ('base = ""', "is a folder; write the path of a TOML file"),
        ('base = "gone.toml"', "gone.toml' not found"),
        ('base = "\\u0000"', "cannot be read as TOML"),
        ("seed = " + "1" * 60_000, "cannot be read as TOML"),
    ],
)
def test_a_value_where_a_table_or_a_path_belongs_is_named_with_its_file_and_what_to_write(
    tmp_path: Path, line: str, message: str
) -> None:
    file = write(tmp_path, line)
    assert message in refusal(file)
    assert str(file) in refusal(file)


def test_a_base_with_a_value_for_a_table_is_blamed_even_where_the_file_above_writes_the_table(
    tmp_path: Path,
) -> None:
    base = write(tmp_path, "policy = 3", "base.toml")
    assert refusal(write(tmp_path, 'base = "base.toml"\n[policy]\nmodel = "x"')).startswith(
        f"{base}, line 1: "
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["--policy", "tiny"],
            "setting 'policy' = 'tiny' is no table; write its keys, such as 'policy.model'",
        ),
        (["--stages", "3"], "setting 'stages' = 3 is no table"),
        (["--stages.sft", "3"], "setting 'stages.sft' = 3 is no table"),
        (["--stages.sft.optimizer=1"], "such as 'stages.sft.optimizer.lr'"),
        (["--policy.trust-remote-code", "true"], "did you mean 'policy.trust_remote_code'?"),
    ],
)
def test_an_override_that_puts_a_value_where_a_table_is_is_refused(
    tmp_path: Path, words: list[str], message: str
) -> None:
    assert message in refusal(write(tmp_path, MINIMAL + "[stages.sft]\n"), words)


def test_overrides_leave_the_users_own_names_as_they_are(tmp_path: Path) -> None:
    file = write(tmp_path, MINIMAL + "[stages.my-stage]\n")
    (settings,) = load_plan(file, ["--stages.my-stage.steps", "5"]).stages
    assert (settings.stage, settings.steps) == ("my-stage", 5)


def test_a_file_that_is_a_folder_or_no_text_is_named(tmp_path: Path) -> None:
    assert f"{tmp_path} is a folder" in refusal(tmp_path)
    (tmp_path / "latin.toml").write_bytes(b'name = "caf\xe9"')
    assert refusal(tmp_path / "latin.toml").endswith(
        "latin.toml is not UTF-8 text (byte 11); save it as UTF-8"
    )


KEYS = (
    st.sampled_from(
        [*RunSettings.model_fields, *PolicySettings.model_fields, "stages", "base", "sft"]
    )
    | st.text()
)
PLAIN = st.booleans() | st.integers() | st.floats() | st.text() | st.dates() | st.datetimes()
VALUES = st.recursive(
    PLAIN,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=8,
)
OVERRIDES = st.lists(st.lists(KEYS, min_size=1, max_size=3).map(".".join) | st.text(), max_size=3)
GOOD = tomllib.loads(MINIMAL)


@examples(max_examples=60, deadline=None)
@example({"rewards": {"\n": False}}, False, [])
@given(st.dictionaries(KEYS, VALUES, max_size=5), st.booleans(), OVERRIDES)
def test_any_table_and_any_overrides_load_or_are_refused_in_one_line(
    table: dict[str, Any], over_good: bool, words: list[str]
) -> None:
    with TemporaryDirectory() as folder:
        file = Path(folder) / "run.toml"
        file.write_bytes(
            tomli_w.dumps(merge(GOOD, table) if over_good else table).encode(errors="replace")
        )
        for overrides in ([], [f"--{word}" for word in words]):
            try:
                assert load_plan(file, overrides).stages
            except SettingsError as error:
                assert "\n" not in str(error)  # noqa: PT017  # most tables are refused, some load: both are right


def test_a_missing_setting_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"`tasks\.train` is missing; write, for example"):
        load_plan(write(tmp_path, 'steps = 1\nalgorithm.name = "sft"'))


def test_a_missing_file_and_broken_toml_are_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"gone\.toml not found"):
        load_plan(tmp_path / "gone.toml")
    with pytest.raises(SettingsError, match="cannot be read as TOML"):
        load_plan(write(tmp_path, "a = "))


def test_an_override_of_a_stage_that_is_not_there_is_refused(tmp_path: Path) -> None:
    file = write(tmp_path, MINIMAL + "[stages.sft]\n")
    with pytest.raises(SettingsError, match="did you mean 'sft'"):
        load_plan(file, ["--stages.sftt.steps", "1"])


def test_a_stage_cannot_be_chosen_by_an_override_that_does_nothing(tmp_path: Path) -> None:
    file = write(tmp_path, MINIMAL + "[stages.sft]\n")
    with pytest.raises(SettingsError, match="--stage sft: every stage runs; drop one with --unset"):
        load_plan(file, ["--stage", "sft"])


def test_the_resolved_settings_read_back_as_they_were_from_another_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "deeper").mkdir()
    (tmp_path / "m").mkdir()
    more = "[policy.lora]\nrank = 2\n[rewards.length]\nalpha = 0.5\n[evaluate]\ntasks = 'e.jsonl'\n"
    words = ["--judge.verdict_cache", "/tmp/v", "--policy.model", "./m", "--plugins", "[]"]
    settings = load_plan(write(tmp_path, MINIMAL + more), words).stages[0]
    again = write(tmp_path / "deeper", dump(settings, Path("deeper")), "again.toml")
    assert load_plan(again.relative_to(tmp_path)).stages[0] == settings


PATHS = """
folder = "out"
plugins = ["mine.py"]
policy.model = "models/a"
judge.verdict_cache = "verdicts"
algorithm.pairs = "p.jsonl"
engine.python = "venv/bin/python"
evaluate.tasks = "humaneval:rows/e.jsonl.gz"
[stages.sft]
tasks.train = "t.jsonl"
"""


REGISTERS = "from assay.rewards import reward\n\n\n@reward\ndef of_load(rollout): return 1.0\n"


def test_every_path_in_a_file_is_relative_to_that_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sub" / "models" / "a").mkdir(parents=True)
    (tmp_path / "sub" / "mine.py").write_text(REGISTERS)
    write(tmp_path / "sub", PATHS + MINIMAL.partition("tasks.train")[0], "base.toml")
    (s,) = load_plan(write(tmp_path, 'base = "sub/base.toml"').relative_to(tmp_path)).stages
    assert (s.folder, s.plugins, s.policy.model) == ("sub/out", ("sub/mine.py",), "./sub/models/a")
    assert (s.judge.verdict_cache, s.algorithm["pairs"]) == ("sub/verdicts", "sub/p.jsonl")
    assert s.engine.python == "sub/venv/bin/python"
    assert s.evaluate
    assert (s.tasks.train, s.evaluate.tasks) == (
        ("sub/t.jsonl",),
        ("humaneval:sub/rows/e.jsonl.gz",),
    )


@pytest.mark.parametrize(
    "line",
    [
        "policy.model = 'org/name'",
        "engine.python = 'python3'",
        "evaluate.tasks = 'mbpp:test'",
        "evaluate.tasks = 'mbpp:'",
    ],
)
def test_a_name_in_a_file_is_no_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sub").mkdir()
    (settings,) = load_plan(
        Path(write(tmp_path / "sub", line + MINIMAL).relative_to(tmp_path))
    ).stages
    key, _, value = line.partition(" = ")
    table, _, key = key.partition(".")
    name = value.strip("'")
    assert getattr(getattr(settings, table), key) in (name, (name,))


def test_paths_on_the_command_line_and_the_default_folder_are_relative_to_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sub").mkdir()
    (tmp_path / "mine.py").write_text(REGISTERS.replace("of_load", "another"))
    file = write(tmp_path / "sub", MINIMAL).relative_to(tmp_path)
    (settings,) = load_plan(file, ["--tasks.train", "t.jsonl", "--plugins", "mine.py"]).stages
    assert (settings.folder, settings.tasks.train) == ("runs", ("t.jsonl",))
    assert settings.plugins == ("mine.py",)


IN_HOME = """
folder = "~/out"
plugins = ["~/mine.py"]
policy.model = "~/models/a"
judge.verdict_cache = "~/verdicts"
algorithm.pairs = "~/p.jsonl"
engine.python = "~/venv/bin/python"
evaluate.tasks = "humaneval:~/rows/e.jsonl.gz"
[stages.sft]
tasks.train = "~/t.jsonl"
"""


def test_a_tilde_before_a_path_in_a_file_is_the_home_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    (home / "mine.py").write_text(REGISTERS.replace("of_load", "at_home"))
    write(home, IN_HOME + MINIMAL.partition("tasks.train")[0], "base.toml")
    (s,) = load_plan(write(tmp_path, 'base = "~/base.toml"')).stages
    names = (s.folder, *s.plugins, s.policy.model, s.judge.verdict_cache, s.algorithm["pairs"],
             s.engine.python, *s.tasks.train)  # fmt: skip
    ends = ("out", "mine.py", "models/a", "verdicts", "p.jsonl", "venv/bin/python", "t.jsonl")
    assert names == tuple(f"{home}/{end}" for end in ends)
    assert s.evaluate
    assert s.evaluate.tasks == (f"humaneval:{home}/rows/e.jsonl.gz",)


@pytest.mark.parametrize(
    ("word", "get", "path"),
    [
        ("--policy.model=~/m", lambda s: s.policy.model, "{home}/m"),
        ("--folder=~", lambda s: s.folder, "{home}"),
        ('--tasks.train=["~/t.jsonl"]', lambda s: s.tasks.train[0], "{home}/t.jsonl"),
        ("--stages.grpo.judge.verdict_cache=~/v", lambda s: s.judge.verdict_cache, "{home}/v"),
        ("--policy.model=m~/x", lambda s: s.policy.model, "m~/x"),
        ("--prompt.system=~/x", lambda s: s.prompt.system, "~/x"),
    ],
)
def test_a_tilde_after_an_equals_sign_is_the_home_folder_where_a_path_starts_with_it(
    word: str, get: Callable[[RunSettings], str], path: str, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setenv("HOME", str(tmp_path))
    file = write(tmp_path, f"{MINIMAL}[stages.grpo]\n")
    (settings,) = load_plan(file, [word]).stages
    assert get(settings) == path.format(home=tmp_path)


def test_a_tilde_in_an_evaluation_is_the_home_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    short = {"model": "policy.model", "tasks": "evaluate.tasks"}
    run = load_evaluation(None, ["--model=~/m", "--tasks=~/t.jsonl"], short)
    assert run.policy.model == f"{tmp_path}/m"
    assert run.evaluate.tasks == (f"{tmp_path}/t.jsonl",)


def test_the_name_of_a_recipe_stands_for_its_file_unless_a_file_has_that_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert load_plan(Path("demo")).stages[0].name == "demo"
    (tmp_path / "demo").write_text(MINIMAL)
    assert load_plan(Path("demo")).stages[0].name == "run"
    with pytest.raises(SettingsError) as refused:
        load_plan(Path("dmo"))
    recipes = {file.stem for file in (Path(__file__).parents[2] / "recipes").glob("*.toml")}
    assert {"dmo", *recipes} <= {*re.findall(r"\w+", str(refused.value))}


def test_files_that_a_named_recipe_reads_lie_in_the_working_directory() -> None:
    recipe = Path(__file__).parents[2] / "recipes" / "repository.toml"
    (settings, _) = load_plan(Path("repository")).stages
    assert settings.tasks.train == ("made/tasks.jsonl",)
    (settings, _) = load_plan(recipe).stages
    assert settings.tasks.train == (str(recipe.parent / "made" / "tasks.jsonl"),)


def test_a_mistake_is_found_in_the_file_on_the_line_that_makes_it(tmp_path: Path) -> None:
    base = write(tmp_path, MINIMAL + "[rollout]\ntemperature = 0.5\ngrop = 4\n", "base.toml")
    file = write(tmp_path, 'base = "base.toml"\n[stages.a.rollout]\ntemperature = [\n  3,\n]\n')
    assert refusal(base).startswith(f"{base}, line 8: unknown setting 'rollout.grop'")
    assert refusal(file).startswith((f"{file}, line 5: ", f"{base}, line 8: "))
    assert refusal(file, ["--stages.a.rollout.temperature", "2"]).startswith(
        ("--stages.a.rollout.temperature 2: ", f"{base}, line 8: ")
    )


def test_what_other_trainers_call_a_setting_leads_to_its_name_here() -> None:
    options = {
        f"algorithm.{key}" for name in algorithms for key in algorithms[name].settings.model_fields
    }
    names = tomllib.loads(OTHER_NAMES.read_text())["calls it"]
    assert names.keys() <= {*all_keys(), "algorithm.name", *options}
    every = [other for others in names.values() for other in others]
    assert len(every) == len(set(every))


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("learner.context_parallel_size", "context parallelism: a sequence must fit into one GPU"),
        ("learner.cpu_offload", "offload to the CPU: use more ranks"),
        ("engine.enable_sleep_mode", "servers that sleep while the learner uses their GPU"),
        ("pipeline_parallel_size", "pipeline parallelism: use more ranks"),
        ("rollout.top_p", "sampling from only some tokens in training: the learner computes"),
        ("rollout.top_k", "sampling from only some tokens in training"),
        ("rollout.min_p", "sampling from only some tokens in training"),
    ],
)
def test_what_other_trainers_have_and_assay_has_not_is_refused_by_name(
    tmp_path: Path, name: str, what: str
) -> None:
    said = refusal(write(tmp_path, MINIMAL), [f"--{name}", "2"])
    assert f"unknown setting {name!r}: assay has no {what}" in said


def test_no_setting_that_assay_has_is_said_to_be_absent() -> None:
    ours = {key.rpartition(".")[2] for key in all_keys()}
    others = tomllib.loads(OTHER_NAMES.read_text())
    absent = [name for names in others["has no"].values() for name in names]
    theirs = {name for names in others["calls it"].values() for name in names}
    assert len(absent) == len(set(absent))
    assert not {*absent} & {*all_keys()}
    assert not {*absent} & (ours | theirs)


def test_settings_cannot_be_changed_once_read(tmp_path: Path) -> None:
    settings = load_plan(write(tmp_path, MINIMAL)).stages[0]
    with pytest.raises(ValueError, match="frozen"):
        settings.seed = 3  # type: ignore[misc]


@pytest.mark.parametrize("copied", ["rollout.max_staleness = 1", 'engine.dtype = "bfloat16"'])
def test_a_quantized_policy_that_would_have_to_be_copied_is_refused_before_anything_runs(
    tmp_path: Path, copied: str
) -> None:
    text = MINIMAL + 'policy = { quantize = "nf4", lora = {} }\n'
    load_plan(write(tmp_path, text))
    with pytest.raises(SettingsError, match=r"rollout\.max_staleness = 0"):
        load_plan(write(tmp_path, text + copied))


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ('judge.servers = ["host:8080"]', "like http://host:8080"),
        ('judge.servers = ["http://user:secret@host"]', "like http://host:8080"),
        ('judge.servers = ["http://host/judge"]', "like http://host:8080"),
        ('judge.servers = ["http://host:99999"]', "Port out of range"),
        ('judge.servers = ["http://a", "http://a"]', "names a service twice"),
        ('judge = { servers = ["http://a"], slots = 2 }', "are of a judge in this process"),
    ],
)
def test_services_that_judge_are_addresses_and_nothing_else(
    tmp_path: Path, table: str, message: str
) -> None:
    said = refusal(write(tmp_path, f"{MINIMAL}{table}\n"))
    assert message in said
    assert "secret" not in said


def test_prefetching_groups_needs_staleness(tmp_path: Path) -> None:
    with pytest.raises(
        SettingsError, match=r"rollout\.prefetch_groups.* needs .*rollout\.max_staleness"
    ):
        load_plan(write(tmp_path, MINIMAL + "rollout.prefetch_groups = 2\n"))
    text = MINIMAL + "rollout = { prefetch_groups = 2, max_staleness = 1 }\n"
    assert load_plan(write(tmp_path, text)).stages[0].rollout.prefetch_groups == 2


BASE = """
steps = 5
algorithm = { name = "grpo", kl = 0.1 }
tasks = { train = "drills:train", limit = 4 }
evaluate = { tasks = "drills:test", limit = 2 }
[stages.one]
[stages.two]
"""


def test_a_file_goes_without_what_it_unsets_of_its_base(tmp_path: Path) -> None:
    write(tmp_path, BASE, "base.toml")
    away = 'unset = ["steps", "evaluate", "stages.two", "tasks.limit"]'
    plan = load_plan(write(tmp_path, f'base = "base.toml"\nepochs = 2\n{away}'))
    (stage,) = plan.stages
    assert (stage.steps, stage.epochs, stage.evaluate) == (None, 2.0, None)
    assert (stage.stage, stage.tasks.limit) == ("one", None)
    assert plan.files[1].table["tasks"]["limit"] == 4, "the file is as it was read"


def test_a_key_that_a_file_unsets_can_be_set_again_in_the_same_file(tmp_path: Path) -> None:
    write(tmp_path, BASE, "base.toml")
    own = 'base = "base.toml"\nunset = ["algorithm"]\nalgorithm.name = "sft"'
    first, second = load_plan(write(tmp_path, own)).stages
    assert first.algorithm == second.algorithm == {"name": "sft"}, "without the base's kl"


@pytest.mark.parametrize(
    "words",
    [
        ["--unset", "steps", "--unset", "evaluate", "--epochs", "2"],
        ["--unset", '["steps", "evaluate"]', "--epochs", "2"],
    ],
)
def test_a_flag_unsets_what_the_files_set(tmp_path: Path, words: list[str]) -> None:
    for stage in load_plan(write(tmp_path, BASE), words).stages:
        assert (stage.steps, stage.epochs, stage.evaluate) == (None, 2.0, None)


def test_an_evaluation_unsets_as_training_does(tmp_path: Path) -> None:
    run = load_evaluation(write(tmp_path, BASE), ["--unset", "evaluate.limit"], {})
    assert run.evaluate.limit is None


@pytest.mark.parametrize(
    ("text", "words", "says"),
    [
        (
            'unset = ["stpes"]',
            [],
            "run.toml: unset 'stpes', which nothing sets; did you mean 'steps'",
        ),
        ("", ["--unset", "seed"], "--unset seed: unset 'seed', which nothing sets"),
        ("unset = 3", [], "run.toml: unset 3, which nothing sets"),
        ("", ["--unset", "steps.one"], "unset 'steps.one', which nothing sets"),
    ],
)
def test_a_key_to_unset_that_nothing_sets_is_refused(
    tmp_path: Path, text: str, words: list[str], says: str
) -> None:
    write(tmp_path, BASE, "base.toml")
    file = write(tmp_path, f'base = "base.toml"\n{text}')
    with pytest.raises(SettingsError, match=re.escape(says)):
        load_plan(file, words)


@pytest.mark.parametrize("name", ["7", "07", "1e3", "true", "2024-08-31", "0x1f", "inf"])
def test_a_text_on_the_command_line_is_the_text_that_was_typed(tmp_path: Path, name: str) -> None:
    file = write(tmp_path, 'algorithm.name = "grpo"\ntasks.train = "drills:train"\nsteps = 1')
    words = ["--name", name, "--policy.model", name, "--tasks.train", f"jsonl:{name}.jsonl"]
    (stage,) = load_plan(file, words).stages
    assert (stage.name, stage.policy.model) == (name, name)
    assert load_plan(file, ["--seed", "7"]).stages[0].seed == 7
    with pytest.raises(SettingsError, match="must be text in quotes"):
        load_plan(write(tmp_path, 'name = 7\nalgorithm.name = "grpo"\nsteps = 1'))


STAGED = """algorithm.name = "sft"
tasks.train = "drills:train"
{}
[stages.sft]
{}
[stages.grpo]
algorithm.name = "grpo"
steps = 50
"""


@pytest.mark.parametrize(
    ("top", "stage", "words", "lengths"),
    [
        ("", "epochs = 6", ["--stages.sft.steps", "2"], [(2, None), (50, None)]),
        ("", "epochs = 6", ["--steps", "2"], [(2, None), (2, None)]),
        ("", "steps = 6", ["--epochs", "1.5"], [(None, 1.5), (None, 1.5)]),
        ("steps = 3", "epochs = 6", [], [(None, 6.0), (50, None)]),
        ("epochs = 3", "", [], [(None, 3.0), (50, None)]),
        ("epochs = 3", "", ["--steps", "4", "--stages.sft.epochs", "1"], [(None, 1.0), (4, None)]),
    ],
)
def test_steps_of_a_later_layer_replace_epochs_of_an_earlier_one(
    tmp_path: Path, top: str, stage: str, words: list[str], lengths: list[tuple[Any, Any]]
) -> None:
    plan = load_plan(write(tmp_path, STAGED.format(top, stage)), words)
    assert [(each.steps, each.epochs) for each in plan.stages] == lengths


def test_a_base_gives_way_too(tmp_path: Path) -> None:
    write(tmp_path, STAGED.format("", "epochs = 6")).rename(tmp_path / "base.toml")
    file = write(tmp_path, 'base = "base.toml"\n[stages.sft]\nsteps = 2')
    assert [(each.steps, each.epochs) for each in load_plan(file).stages] == [(2, None), (50, None)]


@pytest.mark.parametrize(
    ("stage", "words", "where"),
    [
        ("epochs = 6\nsteps = 2", [], r"run.toml, line 5 and .*run.toml, line 6"),
        ("", ["--steps", "2", "--epochs", "3"], "--epochs 3 and --steps 2"),
    ],
)
def test_steps_and_epochs_in_one_layer_are_named_with_the_place_of_each(
    tmp_path: Path, stage: str, words: list[str], where: str
) -> None:
    with pytest.raises(SettingsError, match=f"{where}: write either `steps` or `epochs`"):
        load_plan(write(tmp_path, STAGED.format("", stage)), words)


def test_a_mark_of_the_encoding_is_no_part_of_a_settings_file(tmp_path: Path) -> None:
    file = write(tmp_path, "")
    file.write_bytes(b'\xef\xbb\xbfname = "mine"\nalgorithm.name = "grpo"\nsteps = 1\n'
                     b'tasks.train = "drills:train"')  # fmt: skip
    assert load_plan(file).stages[0].name == "mine"
    file.write_bytes('name = "mine"'.encode("utf-16"))
    with pytest.raises(SettingsError, match="not UTF-8 text"):
        load_plan(file)


def test_a_typo_in_stop_if_is_refused_with_the_name_that_it_means(tmp_path: Path) -> None:
    said = refusal(write(tmp_path, MINIMAL), ["--stop_if", "colapse"])
    assert "'stop_if' names no warning: 'colapse'; did you mean 'collapse'?" in said
    file = write(tmp_path, 'stop_if = ["collapse", "too_easy"]\n' + MINIMAL)
    assert load_plan(file).stages[0].stop_if == ("collapse", "too_easy")
