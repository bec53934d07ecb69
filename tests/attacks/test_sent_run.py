"""A run folder that somebody sent: whatever its settings say, none of its Python is run."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from assay.cli import app
from assay.errors import UserError
from tests.train.test_stages import PLAN, run

CODE = """
from pathlib import Path
Path({marker!r}).write_text("ran")
from transformers import LlamaConfig, LlamaForCausalLM
class SentConfig(LlamaConfig):
    model_type = "sent"
class SentModel(LlamaForCausalLM):
    config_class = SentConfig
"""
AUTO = {"AutoConfig": "sent.SentConfig", "AutoModelForCausalLM": "sent.SentModel"}
FLAG = "--trust-remote-code"
READERS = {
    "export a run": (["export", "{run}", "{out}"], FLAG),
    "export a checkpoint": (["export", "{checkpoint}", "{out}"], FLAG),
    "export, where no setting tells": (["export", "{silent}", "{out}"], FLAG),
    "eval": (["eval", "--model", "{run}", "--tasks", "drills:test", "--out", "{out}"],
             "--policy.trust_remote_code true"),
    "show-prompt": (["show-prompt", "{mine}", "--policy.model", "{checkpoint}"],
                    "--policy.trust_remote_code true"),
    "view": (["view", "{run}", "--export", "{out}"], ""),
    "show": (["show", "{run}", "--json"], ""),
    "compare": (["compare", "{run}"], ""),
    "resume": (["train", "{mine}", "--folder", "{runs}", "--name", "run"], "other settings"),
}  # fmt: skip


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with all weights of its model in its checkpoint."""
    return run(tmp_path_factory.mktemp("trained"), PLAN, "--name", "run").folder


def sent(trained: Path, folder: Path, marker: Path, trusts: bool = True) -> Path:
    """The run, changed by its sender: its model, settings and plug-in leave a marker."""
    return spoil(shutil.copytree(trained, folder / "run"), marker, trusts)


def spoil(made: Path, marker: Path, trusts: bool) -> Path:
    (checkpoint,) = made.glob("first/checkpoints/*")
    (made / "first/sent.py").write_text(CODE.format(marker=str(marker)))
    shutil.copy(made / "first/sent.py", checkpoint)
    for name, more in (("config.json", AUTO), ("tokenizer_config.json", {})):
        table = json.loads((checkpoint / name).read_text())
        changes = {"model_type": "sent", "auto_map": more} if more else {}
        (checkpoint / name).write_text(json.dumps(table | changes))
    (checkpoint / "assay/files.json").unlink()
    settings = (made / "first/config.toml").read_text()
    if trusts:
        settings = settings.replace("trust_remote_code = false", "trust_remote_code = true")
        settings = settings.replace("plugins = []", 'plugins = ["sent.py"]')
    (made / "first/config.toml").write_text(settings)
    return made


@pytest.mark.parametrize("command", READERS)
def test_no_command_runs_python_of_a_run_that_somebody_sent_and_each_says_which_flag_would(
    trained: Path, tmp_path: Path, command: str
) -> None:
    marker, (words, why) = tmp_path / "marker", READERS[command]
    made = sent(trained, tmp_path / "runs", marker)
    (tmp_path / "mine.toml").write_text(PLAN)
    places = {
        "run": made, "runs": made.parent, "out": tmp_path / "out", "mine": tmp_path / "mine.toml",
        "silent": sent(trained, tmp_path / "silent", marker, trusts=False),
        "checkpoint": next(made.glob("first/checkpoints/*")),
    }  # fmt: skip
    done = CliRunner().invoke(app, [word.format(**places) for word in words])
    assert not marker.exists()
    assert (done.exit_code == 0) == (why == ""), done.output
    assert why in f"{done.output} {done.exception}"


def test_a_run_that_goes_on_where_its_checkpoint_was_changed_runs_no_python_of_it(
    tmp_path: Path,
) -> None:
    marker, words = tmp_path / "marker", ["--name", "run", "--steps"]
    spoil(run(tmp_path, PLAN, *words, "1").folder, marker, trusts=False)
    with pytest.raises(UserError, match="Python code of its own"):
        run(tmp_path, PLAN, *words, "2")
    assert not marker.exists()


def test_the_callers_own_flag_lets_an_export_run_the_models_code(
    trained: Path, tmp_path: Path
) -> None:
    marker = tmp_path / "marker"
    made = sent(trained, tmp_path / "runs", marker)
    done = CliRunner().invoke(app, ["export", str(made), str(tmp_path / "out"), FLAG])
    assert marker.exists(), done.output


def test_a_card_is_text_whatever_the_settings_hold(trained: Path, tmp_path: Path) -> None:
    made = Path(shutil.copytree(trained, tmp_path / "runs/run"))
    settings, more = made / "first/config.toml", "\n# \u202eesrever\u2066 x\x85y\n# ```\n# [a](b)\n"
    settings.write_text(settings.read_text() + more)
    done = CliRunner().invoke(app, ["export", str(made), str(tmp_path / "out")])
    assert done.exit_code == 0, f"{done.output} {done.exception}"
    card = (tmp_path / "out/README.md").read_text()
    assert {char for char in card if not char.isprintable()} <= {"\n", "\t"}
    assert "````toml\n" in card
    assert "# \\u202eesrever\\u2066 x\\x85y\n# ```\n# [a](b)\n````" in card
