"""How a run or a command names tasks: a set and its split, or a file of rows."""

from pathlib import Path

from assay.errors import SettingsError

ROWS = (".jsonl", ".jsonl.gz", ".json", ".json.gz", ".parquet")
"""Endings of files that hold rows."""


def split_spec(spec: str) -> tuple[str, str]:
    """A task set's name and its split or file: of `mbpp:train`, `jsonl:my.jsonl` or `my.jsonl`.

    Raises SettingsError for a file that holds no rows, by its name.
    """
    name, colon, split = spec.partition(":")
    is_path = Path(spec).suffix or "/" in spec or spec == "."
    if is_path and not colon and not spec.endswith(ROWS):
        raise SettingsError(f"{spec} is no file of tasks; write rows of JSON to a .jsonl file")
    return ("jsonl", spec) if spec.endswith(ROWS) and not colon else (name, split)
