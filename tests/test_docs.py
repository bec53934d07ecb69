"""The documents say what is there: settings, commands, links, snippets."""

from __future__ import annotations

import importlib.util
import re
import tomllib
from pathlib import Path

import pytest

from assay.algorithms import algorithms
from assay.cli import app
from assay.config.load_settings import load_plan
from assay.environments import environments
from assay.rewards import rewards

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "bench").glob("*.md")])
GENERATED = ("settings.md", "api.md")
WORDS_A_MINUTE = 230
README = (ROOT / "README.md").read_text()


@pytest.mark.parametrize("page", ["settings", "api"])
def test_a_page_made_from_docstrings_is_current(page: str) -> None:
    spec = importlib.util.spec_from_file_location(f"make_{page}", ROOT / f"docs/make_{page}.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert (ROOT / f"docs/{page}.md").read_text() == module.render(), (
        f"run `python docs/make_{page}.py`"
    )


def test_every_public_call_says_what_it_does() -> None:
    calls = re.findall(r"^- `[\w.]+\(.*?\)`: (.*)$", (ROOT / "docs/api.md").read_text(), re.M)
    assert len(calls) > 20
    assert [text for text in calls if len(text) < 20] == []


def test_every_setting_has_help() -> None:
    page = (ROOT / "docs" / "settings.md").read_text()
    tables = page[page.index("## At the top") :]
    rows = re.findall(r"^- `(?:\w+)` \(.*\):.*$", tables, flags=re.MULTILINE)
    assert len(rows) == len(re.findall("^- ", tables, flags=re.MULTILINE)) > 130
    assert [row for row in rows if not re.search(r"\): \S+ \S", row)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_files_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_readme_names_every_command_and_only_commands_that_exist() -> None:
    commands = {name.removeprefix("assay ") for name in commands_shown()}
    shown = set(re.findall(r"(?:^|`)assay ([\w-]+)", README, flags=re.MULTILINE))
    assert shown == commands


def test_extras_are_installed_from_the_checkout() -> None:
    """Anybody may own the package's name on a public registry."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    files = [
        file for folder in ("assay", "recipes", "tests") for file in (ROOT / folder).rglob("*")
    ]
    sources = [file for file in files if file.suffix in (".py", ".toml")]
    for file in [*PAGES, *sources]:
        text = re.sub(r'"?\n *f?"', "", file.read_text())
        assert not re.search(r"pip install '?assay\b", text), file
        extras = re.findall(r"pip install[^\n`]*? '\.\[(\w+)\]'", text)
        assert {*extras} - {"NAME"} <= {*project["optional-dependencies"]}, file


def test_the_readmes_make_targets_exist() -> None:
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    assert set(re.findall(r"^(?:\$ )?make (\w+)", README, flags=re.MULTILINE)) <= targets


def test_the_tree_shows_folders_and_files_that_exist() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text()
    tree = page.split("```text\nassay/\n")[1].split("```")[0]
    names = re.findall(r"^  (\S+)", tree, flags=re.MULTILINE)
    assert len(names) > 10
    for name in names:
        assert (ROOT / "assay" / name).exists(), name
    shown = {name.rstrip("/") for name in names}
    real = {path.name for path in (ROOT / "assay").iterdir() if path.name[:2] not in ("__", "py")}
    assert shown == real


def test_each_noun_is_a_class_of_the_file_beside_it() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text().partition("\n## The nouns\n")[2]
    rows = re.findall(r"^\| `(\w+)` \|.*\| `([\w/]+)` \| [^|]+ \|$", page, flags=re.MULTILINE)
    assert len(rows) == page.count("\n| `") > 20
    for noun, file in rows:
        source = (ROOT / "assay" / f"{file}.py").read_text()
        assert re.search(rf"^class {noun}\b", source, re.MULTILINE), f"no {noun} in {file}"


def test_the_page_on_task_sets_says_where_each_comes_from() -> None:
    from assay.tasks import task_sets

    page = (ROOT / "docs" / "task-sets.md").read_text()
    sets = page.split("## Public sets")[1].split("\n## ")[0]
    ours = [name for name in task_sets if task_sets[name].__module__.startswith("assay.")]
    assert [name for name in ours if f"`{name}`" not in sets] == []


def test_the_page_on_algorithms_has_a_paragraph_on_each() -> None:
    shown = set(
        re.findall(
            r"^\*\*(\w+)\*\*", (ROOT / "docs" / "algorithms.md").read_text(), flags=re.MULTILINE
        )
    )
    bundled = {
        name
        for name in algorithms
        if algorithms[name].make.__module__.startswith("assay.algorithms")
    }
    assert shown == bundled


@pytest.mark.parametrize(
    "recipe", sorted((ROOT / "recipes").glob("*.toml")), ids=lambda path: path.name
)
def test_every_recipe_is_a_valid_plan(recipe: Path) -> None:
    assert load_plan(recipe).stages


def test_settings_shown_in_the_documents_are_valid_toml() -> None:
    for page in PAGES:
        for block in re.findall(r"```toml[^\n]*\n(.*?)```", page.read_text(), flags=re.DOTALL):
            tomllib.loads(block)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_page_takes_more_than_ten_minutes_to_read(page: Path) -> None:
    if page.name not in GENERATED:
        assert prose_words(page.read_text()) <= 10 * WORDS_A_MINUTE


def test_tables_and_code_are_no_prose_of_a_page() -> None:
    page = (
        "One [two](three.md).\n\n```sh\nassay eval\n```\n\n| a | table |\n\n![image](image.png)\n"
    )
    assert prose_words(page) == 2


def test_the_index_of_benchmarks_stays_short() -> None:
    assert len((ROOT / "bench" / "README.md").read_text().split()) <= 1500


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_figure_is_left_to_be_filled_in(page: Path) -> None:
    assert not re.findall(
        r"\b(?:TODO|TBD|DATE|OUTPUT|RUNS|JUDGE|THREADS|HELP|\w+_TABLE)\b", page.read_text()
    )


def test_the_table_of_other_trainers_names_settings_that_exist() -> None:
    page = (ROOT / "docs" / "coming-from.md").read_text()
    ours = re.findall(r"^\| `([\w.]+)` \|", page, flags=re.MULTILINE)
    assert len(ours) > 30
    assert [name for name in ours if name not in settings_shown()] == []


WORDS = re.findall(
    r"^- ([^*:]+): (.*?) ?\(\[[\w.]+\]\(([\w.-]+)(?:#([\w-]+))?\)\)$",
    (ROOT / "docs" / "coming-from.md").read_text(),
    flags=re.MULTILINE,
)
"""Words of TRL, verl, vLLM and inspect_ai: the word, what it is here, a page and its heading."""


def test_fifty_words_of_other_tools_are_explained() -> None:
    assert len(WORDS) >= 50
    assert len({word for word, *_ in WORDS}) == len(WORDS)


@pytest.mark.parametrize(("word", "ours", "page", "heading"), WORDS, ids=[row[0] for row in WORDS])
def test_a_word_of_another_tool_leads_to_what_exists(
    word: str, ours: str, page: str, heading: str
) -> None:
    text = (ROOT / "docs" / page).read_text()
    assert not heading or heading in anchors(text), f"{page} has no heading #{heading}"
    for name in re.findall("`([^`]+)`", ours):
        assert name in things_by_name(), f"{word}: there is no {name}"
        assert re.search(rf"\b{re.escape(name.split('.')[-1])}\b", text), f"{page} has no {name}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_to_headings_lead_to_one(page: Path) -> None:
    for target, heading in re.findall(r"\]\(([^)#:]*)#([^)]*)\)", page.read_text()):
        there = page.parent / target if target else page
        assert heading in anchors(there.read_text()), f"{page.name} links to {target}#{heading}"


def prose_words(text: str) -> int:
    """The words of a page that a person reads one by one: no tables, code, images or addresses."""
    text = re.sub(r"^```.*?^```$|<!--.*?-->|^\|.*?$", "", text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"!\[[^\]]*\]\([^)]*\)", "", text)
    return len(re.sub(r"\]\([^)]*\)", "]", text).split())


def anchors(text: str) -> set[str]:
    """The headings of a page as GitHub names them in links."""
    outside = re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
    titles = re.findall(r"^#+ (.+)$", outside, flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


def settings_shown() -> set[str]:
    """Every setting by its dotted name, those of algorithms as `algorithm.NAME`."""
    settings = load_plan(ROOT / "recipes" / "qwen05.toml").stages[-1]
    of_algorithms = {
        f"algorithm.{key}" for name in algorithms for key in algorithms[name].settings.model_fields
    }
    return settings_named(settings) | of_algorithms | {"algorithm.name"}


def commands_shown() -> set[str]:
    """Every command as a user types it."""
    return {
        f"assay {info.name or info.callback.__name__}"
        for info in app.registered_commands
        if info.callback
    }


def things_by_name() -> set[str]:
    """Settings, commands, plug-ins, metrics, files and public calls."""
    metrics = set(re.findall(r"^\| `([^`]+)` \|", (ROOT / "docs/metrics.md").read_text(), re.M))
    api = (ROOT / "docs/api.md").read_text()
    calls = {
        f"{module}.{name}"
        for module, section in re.findall(r"^## `(\S+)`$(.*?)(?=^## |\Z)", api, re.M | re.S)
        for name in re.findall(r"^- `(\w+)\(", section, re.M)
    }
    return {
        *settings_shown(), *commands_shown(), *metrics, *calls,
        *algorithms, *environments, *rewards, "report.json",
    }  # fmt: skip


def settings_named(settings: object, prefix: str = "") -> set[str]:
    """Every setting of a section and of those in it, by its dotted name."""
    fields = getattr(type(settings), "model_fields", {})
    names = {f"{prefix}{name}" for name in fields}
    return names.union(
        *(settings_named(getattr(settings, name), f"{prefix}{name}.") for name in fields)
    )
