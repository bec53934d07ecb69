"""Clients of a judge service that ask for what is not theirs."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from assay.errors import AssayError
from assay.integrations import bodies
from assay.tasks import task_sets

FOLDER = "secret-folder"
SPLITS = ("{}", FOLDER, f"../{FOLDER}", f"prompt2@{FOLDER}", f"{FOLDER}/rows.jsonl")


def test_no_task_set_reads_a_folder_that_a_client_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / FOLDER / "a").mkdir(parents=True)
    (tmp_path / FOLDER / "a" / "task.toml").write_text("")
    (tmp_path / FOLDER / "rows.jsonl").write_text("{}")
    monkeypatch.chdir(tmp_path)
    touched = list[str]()
    sys.addaudithook(lambda event, arguments: note(event, arguments, touched))
    for name in task_sets:
        for split in SPLITS:
            with pytest.raises(AssayError):
                bodies.tasks_of(f"{name}:{split.format(tmp_path / FOLDER)}")
    assert touched == []


def note(event: str, arguments: tuple[object, ...], touched: list[str]) -> None:
    """Keep what is opened or listed of the folder."""
    if event in ("open", "os.listdir", "os.scandir") and FOLDER in str(arguments[0]):
        touched.append(f"{event} {arguments[0]}")
