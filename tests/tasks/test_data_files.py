"""Data sets of users, as the hub, `save_to_disk`, Spark and spreadsheets write them."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
import pytest
from huggingface_hub import constants
from pyarrow import parquet

from assay.errors import DataError, SettingsError, UserError
from assay.task_specs import DataName
from assay.tasks import load
from assay.tasks.data_files import ask_hub, content_of, files_of, hub_rows
from assay.types import Call

ROWS: list[dict[str, Any]] = [
    {"id": f"row {n}", "prompt": f"Write f{n}.", "tests": [f"assert f{n}() == {n}"],
     "entry_point": f"f{n}"}
    for n in range(5)
]  # fmt: skip
IDS = [row["id"] for row in ROWS]


def write(file: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    if file.suffix == ".parquet":
        parquet.write_table(pa.Table.from_pylist([*rows]), file)
    else:
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))


def shards(folder: Path) -> Path:
    """A folder as the hub has it: four rows to train in two shards, and one to test."""
    write(folder / "data/train-00000-of-00002.parquet", ROWS[:2])
    write(folder / "data/train-00001-of-00002.parquet", ROWS[2:4])
    write(folder / "data/test-00000-of-00001.parquet", ROWS[4:])
    return folder


def ids(spec: object) -> list[str]:
    return [task.id for task in load(str(spec))]


@pytest.mark.parametrize("has_header", [False, True])
def test_a_folder_of_the_hub_is_read_by_split_in_the_order_of_its_rows(
    tmp_path: Path, has_header: bool
) -> None:
    folder = shards(tmp_path / "mine")
    if has_header:
        (folder / "README.md").write_text(
            "---\nconfigs:\n- config_name: default\n  data_files:\n  - split: train\n"
            "    path: data/train-*\n  - split: test\n    path: [data/test-*]\n---\n# Mine\n"
        )
    assert ids(f"{folder}:train") == IDS[:4]
    assert ids(f"jsonl:{folder}:test") == IDS[4:]
    with pytest.raises(SettingsError, match=r"mine has the splits .*; choose one: .*/mine:t"):
        load(str(folder))
    with pytest.raises(SettingsError, match=r"unknown split 'tset' of .*did you mean 'test'"):
        load(f"{folder}:tset")


def test_a_header_names_the_configurations_and_no_file_outside_its_folder(tmp_path: Path) -> None:
    folder = shards(tmp_path / "mine")
    head = (
        "---\nconfigs:\n- {{config_name: a, data_files: {0}}}\n"
        "- {{config_name: b, data_files: {1}}}\n---\n"
    )
    readme = folder / "README.md"
    readme.write_text(head.format("data/train-*", "data/test-*"))
    assert (ids(f"{folder}:a/train"), ids(f"{folder}:b/train")) == (IDS[:4], IDS[4:])
    for outside in ("../x.parquet", "/etc/*.parquet", "https://x/y.parquet"):
        readme.write_text(head.format("data/train-*", outside))
        with pytest.raises(DataError, match="no file in the folder"):
            load(f"{folder}:a/train")
    readme.write_text("---\nconfigs: [\n---\n")
    with pytest.raises(DataError, match="the head is no YAML"):
        load(f"{folder}:train")


def test_what_save_to_disk_wrote_is_read(tmp_path: Path) -> None:
    whole = datasets.Dataset.from_list(ROWS)
    whole.save_to_disk(str(tmp_path / "whole"), num_shards=2)
    splits = datasets.DatasetDict(train=whole.select([1, 0]), test=whole.select([4]))
    splits.save_to_disk(str(tmp_path / "splits"))
    assert ids(tmp_path / "whole") == IDS
    assert ids(f"{tmp_path}/splits:train") == [IDS[1], IDS[0]]
    (tmp_path / "whole" / "state.json").write_text('{"_data_files": [{"filename": "../x"}]}')
    with pytest.raises(DataError, match="no names of files here"):
        load(str(tmp_path / "whole"))


def test_a_glob_is_read_in_the_order_of_names(tmp_path: Path) -> None:
    shards(tmp_path)
    (tmp_path / "data" / "notes.txt").write_text("no rows")
    assert ids(f"{tmp_path}/data/*") == [*IDS[4:], *IDS[:4]]
    assert ids(f"{tmp_path}/**/*.parquet:train") == IDS[:4]
    with pytest.raises(DataError, match="matches no file of rows"):
        load(f"{tmp_path}/data/*.csv")


def test_the_files_of_a_split_are_told_by_what_their_names_share(tmp_path: Path) -> None:
    names = {
        "part-00000-0a1b2c3d-11-22-c000.snappy.parquet": "part",
        "main/train/0000.parquet": "main/train", "val_3.jsonl": "val", "data/all.csv": "all",
    }  # fmt: skip
    for name in names:
        write(tmp_path / name, ROWS[:1]) if "csv" not in name else None
    (tmp_path / "data").mkdir()
    (tmp_path / "data/all.csv").write_text('prompt,tests,id\nWrite f.,"[""assert f()""]",a\n')
    (tmp_path / ".cache").mkdir()
    (tmp_path / ".cache/x.json").write_text("{}")
    with pytest.raises(SettingsError) as caught:
        load(str(tmp_path))
    assert all(name in str(caught.value) for name in names.values())
    assert "cache" not in str(caught.value)
    assert ids(f"{tmp_path}:train") == IDS[:1]


def test_rows_of_shards_without_ids_have_different_ones(tmp_path: Path) -> None:
    for number in (0, 1):
        write(tmp_path / f"s-{number}.jsonl", [{k: v for k, v in ROWS[0].items() if k != "id"}])
    assert ids(tmp_path) == ["line 1 of shard 1", "line 1 of shard 2"]


def test_csv_holds_lists_as_json_and_cells_of_several_lines(tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    with file.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["prompt", "entry_point", "inputs", "expected", "tolerance", "setup"])
        writer.writerow(["Halve\nx.", "half", "[[1], [3]]", "[0.5, 1.5]", "0.1", ""])
        writer.writerow(["b" * 2**20, "half", "[[1]]", "[0.5]", "", "k = 1"])
    first, second = load(str(file))
    assert (first.id, first.prompt, first.setup) == ("line 2", "Halve\nx.", "")
    calls = [check for check in first.checks if isinstance(check, Call)]
    assert [(call.arguments, call.expected, call.tolerance) for call in calls] == [
        ("[1]", "0.5", 0.1), ("[3]", "1.5", 0.1),
    ]  # fmt: skip
    assert (second.id, len(second.prompt), second.setup) == ("line 4", 2**20, "k = 1")


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("e.csv", b"", "holds no tasks"),
        ("e.csv", b"prompt,tests\n", "holds no tasks"),
        ("e.csv", b"prompt,prompt\na,b\n", "two columns are called 'prompt'"),
        ("e.csv", b"prompt,tests\na,b,c\n", "line 2: has 3 cells, but the head has 2"),
        ("e.csv", b'prompt,tests\n"a"b,c\n', "line 2: no valid CSV"),
        ("e.csv", b"prompt\n\xff\n", "line 2: cannot be read as UTF-8"),
        ("e.parquet", b"", "cannot be read as Parquet"),
        ("e.json", b"[" * 10**5, "no valid JSON"),
        ("e.jsonl", b"", "holds no tasks"),
    ],
)
def test_odd_files_are_refused_in_one_line(
    tmp_path: Path, name: str, content: bytes, why: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError) as caught:
        load(str(tmp_path / name))
    assert why in str(caught.value)
    assert "\n" not in str(caught.value)


def test_tables_with_structs_nulls_deep_lists_and_large_cells_are_read(tmp_path: Path) -> None:
    deep: Any = "x"
    for _ in range(20):
        deep = [deep]
    row = {**ROWS[0], "prompt": "p" * 10**7, "extra": {"a": 1, "b": None}, "deep": deep}
    write(tmp_path / "odd.parquet", [row, {**ROWS[1], "deep": None, "tests": ROWS[1]["tests"]}])
    assert ids(tmp_path / "odd.parquet") == IDS[:2]
    (tmp_path / "odd.jsonl").write_text(json.dumps(ROWS[0] | {"deep": 0}).replace(
        '"deep": 0', f'"deep": {"[" * 10**5}{"]" * 10**5}'))  # fmt: skip
    with pytest.raises(DataError, match="no valid JSON"):
        load(str(tmp_path / "odd.jsonl"))


@pytest.mark.parametrize(
    "path", ["a/\0", "x" * 300 + "/" + "y" * 300, "./none", ".", "gone/*.parquet"]
)
def test_a_path_where_nothing_is_gets_one_line(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("datasets.config.HF_HUB_OFFLINE", True)
    with pytest.raises(UserError) as caught:
        load(path)
    assert "\n" not in str(caught.value)


def test_a_name_of_the_hub_without_a_network_is_answered_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise OSError("no network")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("socket.getaddrinfo", refused)
    before = constants.HF_HUB_OFFLINE
    for name in ("https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(
        DataError, match=r"owner/name cannot be loaded from the hub .*go online"
    ) as e:
        load("owner/name:train")
    assert "\n" not in str(e.value)
    assert before == constants.HF_HUB_OFFLINE, "later requests of the process go out again"


def test_the_hubs_client_reads_what_we_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    folder = str(shards(tmp_path / "mine"))
    splits = ask_hub(folder, lambda client: client.load_dataset(folder), "why", "otherwise")
    rows = [fields for _, fields in hub_rows(folder, {"train": splits["train"]})]
    assert rows == ROWS[:4]


def test_the_content_of_a_set_tells_its_shards_and_its_columns(tmp_path: Path) -> None:
    folder = shards(tmp_path / "mine")
    train = DataName(str(folder), "train")
    before = content_of(train)
    write(folder / "data/test-00000-of-00001.parquet", ROWS[:1])
    assert content_of(train) == before
    assert content_of(DataName(str(folder), "train", {"prompt": "id"})) != before
    write(folder / "data/train-00001-of-00002.parquet", ROWS[4:])
    assert content_of(train) != before


def test_a_folder_of_strangers_leads_nowhere_else(tmp_path: Path) -> None:
    elsewhere, folder = tmp_path / "elsewhere", tmp_path / "set"
    elsewhere.mkdir()
    folder.mkdir()
    (elsewhere / "secret.json").write_text('[{"prompt": "secret"}]')
    (folder / "linked").symlink_to(elsewhere)
    with pytest.raises(DataError, match="without files of rows"):
        files_of(DataName(str(folder)))
    (folder / "README.md").write_text(
        "---\nconfigs:\n- config_name: default\n  data_files: 'linked/*.json'\n---\n"
    )
    with pytest.raises(DataError, match="no file of the split"):
        files_of(DataName(str(folder)))
    (folder / "dataset_dict.json").write_text('{"splits": ["../elsewhere"]}')
    with pytest.raises(DataError, match="no names of folders"):
        files_of(DataName(str(folder), "../elsewhere"))


@pytest.mark.parametrize(
    ("configs", "why"),
    [
        ("5", "without files of rows"),
        ("[{data_files: 5}]", "is no text"),
        ("[{data_files: '.'}]", "no pattern"),
        ("[{config_name: [a, b], data_files: x.json}]", "is no text"),
    ],
)
def test_a_readme_that_names_no_files_is_answered_in_a_line(
    configs: str, why: str, tmp_path: Path
) -> None:
    (tmp_path / "README.md").write_text(f"---\nconfigs: {configs}\n---\n")
    with pytest.raises(DataError, match=why) as raised:
        files_of(DataName(str(tmp_path)))
    assert "\n" not in str(raised.value)


def test_two_stars_beside_a_name_mean_what_one_does(tmp_path: Path) -> None:
    (tmp_path / "train-0.json").write_text("[]")
    (tmp_path / "README.md").write_text("---\nconfigs:\n- data_files: 'train-**'\n---\n")
    assert files_of(DataName(str(tmp_path))) == [tmp_path / "train-0.json"]
