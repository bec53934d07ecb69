"""SQL over the metrics and the rollouts of runs, with DuckDB."""

from typing import Any

import pyarrow as pa

from assay.errors import SettingsError
from assay.trackers.rollouts import turns
from assay.viewer.folders import RunsFolder

CLOSED = {"enable_external_access": "false", "python_enable_replacements": "false"}
"""A query reaches the two tables, and no file, no network and no variable of this process."""

PART = "select '{}' as run, '{}' as stage, '{}' as kind, * from part{}"


def query(folder: RunsFolder, sql: str) -> tuple[list[str], list[tuple[Any, ...]]]:
    """The columns and the rows of a query over `metrics` (run, stage, step, name, value) and
    `rollouts` (run, stage, kind, and the columns of their files).

    Raises SettingsError without DuckDB, and for a query that it refuses.
    """
    try:
        import duckdb
    except ImportError as error:
        raise SettingsError(
            "--sql needs a package: pip install -e '.[sql]' in assay's checkout"
        ) from error
    connection = duckdb.connect(config=CLOSED)
    lines: list[dict[str, Any]] = []
    parts: list[str] = []
    stages = [(run, stage) for run in folder.runs().values() for stage in run]
    for run, stage in stages:
        place = {"run": run.name, "stage": stage.name}
        lines += [
            place | {"step": row["step"], "name": name, "value": value}
            for row in stage.metrics
            for name, value in row.items()
            if name != "step"
        ]
        for kind, files in stage.rollouts.items():
            files.index()  # which leaves out the files that are damaged
            connection.register(f"part{len(parts)}", turns(files.files().values()))
            quoted = [value.replace("'", "''") for value in (*place.values(), kind)]
            parts.append(PART.format(*quoted, len(parts)))
    text, number = pa.string(), pa.float64()
    columns = {"run": text, "stage": text, "step": pa.int64(), "name": text, "value": number}
    connection.register("metrics", pa.Table.from_pylist(lines, pa.schema(columns)))
    if parts:
        connection.execute(f"create view rollouts as {' union all '.join(parts)}")
    connection.execute("set lock_configuration = true")
    try:
        result = connection.execute(sql)
        return [column[0] for column in result.description or ()], result.fetchall()
    except duckdb.Error as error:
        raise SettingsError(f"--sql: {' '.join(str(error).split())}") from error
