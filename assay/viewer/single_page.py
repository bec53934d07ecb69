"""One HTML file with runs and some of their rollouts, to send: it holds all that it needs."""

import re
from base64 import b64encode
from hashlib import sha256
from pathlib import Path
from typing import Any

from assay.errors import DataError
from assay.files import write_atomically
from assay.strict_json import strict_json
from assay.types import printable
from assay.viewer.folders import RunsFolder
from assay.viewer.page_server import assets
from assay.viewer.questions import ViewerAnswers

NEWEST = 300
"""Rollouts of each stage and kind that are exported, the newest."""
POLICY = "default-src 'none'; script-src {scripts}; style-src {styles}; img-src data:"
IMPORT = re.compile(r'^import (.+?) from "\./(.+?)";$', re.MULTILINE | re.DOTALL)
EXPORT = re.compile(r"^export (?=(?:async )?(?:function|const) (\w+))", re.MULTILINE)
EXPORTS = re.compile(r"export\s*(?:\{([^}]*)\}|default (\w+));?\s*$")


def export_page(folder: RunsFolder, file: Path) -> str:
    """Write the page with every run of the folder, and NEWEST rollouts of each stage and kind;
    return a line that says what it holds, and one for each damaged file that it lacks. Raises
    UserError where a step is trained again meanwhile.
    """
    data = _data(ViewerAnswers(folder))
    write_atomically(file, _page(strict_json(data)))
    count, size = len(data["rollouts"]), file.stat().st_size
    damage = dict.fromkeys(line for run in data["run"].values() for line in run["damage"])
    summary = f"{file}: {len(data['run'])} runs, {count} rollouts, {size / 1e6:.1f} MB"
    return "\n".join([summary, *(f"left out: {printable(line)}" for line in damage)])


def _data(answers: ViewerAnswers) -> dict[str, Any]:
    """The answers to what the page asks, by their parameters (page/local.js reads them)."""
    runs = answers.runs({})
    parts = ("run", "rows", "rollouts", "suspects", "tasks", "evaluations")
    data: dict[str, Any] = {"runs": runs} | {part: {} for part in parts}
    for summary in runs["runs"]:
        run = data["run"][summary["name"]] = answers.run({"run": summary["name"]})
        data["evaluations"][run["name"]] = [
            answers.evaluation({"run": run["name"], "at": str(number)})
            for number in range(len(run["evaluations"]))
        ]
        for stage in run["stages"]:
            for kind in [kind for kind, steps in stage["steps"].items() if steps]:
                files = {"run": run["name"], "stage": stage["name"], "kind": kind}
                rows = answers.rollouts(files | {"count": str(NEWEST)})["rows"]
                name = "|".join(files.values())
                data["rows"][name] = rows
                data["suspects"][name] = answers.suspects(files)
                data["tasks"][name] = answers.tasks(files)
                stage["steps"][kind] = sorted({row["step"] for row in rows})
                for row in rows:
                    place = {key: str(row[key]) for key in ("step", "group", "index")}
                    try:
                        rollout = answers.rollout(files | place)
                    except DataError:
                        continue  # it is among the damage
                    data["rollouts"]["|".join([name, *place.values()])] = rollout
        # More of the files has been read since the run was first told.
        summary["damage"] = run["damage"] = answers.folder.by_name[run["name"]].damage()
    return data


def _page(data: str) -> bytes:
    files = {name: content.decode() for name, content in assets().items()}
    styles = files["vendor/uplot.css"] + files["style.css"]
    script = f"{files['vendor/uplot.js']}\nconst modules = {{}};\n{_bundle(files)}"
    script = script.replace("</script", "<\\/script")
    policy = POLICY.format(scripts=_hash(script), styles=_hash(styles))
    safe = data.replace("<", "\\u003c")
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="referrer" content="no-referrer">\n<title>assay</title>\n'
        f'<link rel="icon" href="data:,">\n<style>{styles}</style>\n</head>\n<body>\n'
        f'<div id="app"></div>\n<script type="application/json" id="data">{safe}</script>\n'
        f"<script>{script}</script>\n</body>\n</html>\n"
    ).encode()


def _hash(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


def _bundle(files: dict[str, str], name: str = "app.js", done: set[str] | None = None) -> str:
    """The modules that `name` imports, and itself, each as a function that returns its exports."""
    done = set() if done is None else done
    if name in done:
        return ""
    done.add(name)
    source, parts = files[name], []
    for _, other in IMPORT.findall(source):
        parts.append(_bundle(files, other, done))
    names = [*EXPORT.findall(source)]
    exports = {name: name for name in names}
    if match := EXPORTS.search(source):
        pairs = [pair.split(" as ") for pair in (match[1] or f"{match[2]} as default").split(",")]
        exports |= {pair[-1].strip(): pair[0].strip() for pair in pairs}
        source = source[: match.start()]
    source = IMPORT.sub(_required, EXPORT.sub("", source))
    returned = ", ".join(f"{outside}: {inside}" for outside, inside in exports.items())
    module = f'modules["{name}"] = (() => {{\n{source}\nreturn {{ {returned} }};\n}})();\n'
    return "".join([*parts, module])


def _required(match: re.Match[str]) -> str:
    names = match[1].replace(" as ", ": ")
    target = names if names.startswith("{") else f"{{ default: {names} }}"
    return f'const {target} = modules["{match[2]}"];'
