"""The service describes itself, and the curl lines of docs/service.md work as they stand."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integrations.server import Server, serving

PAGE = (Path(__file__).parent.parent.parent / "docs" / "service.md").read_text()
EXAMPLES = re.findall(r"```sh\n(curl .*?)\n```\n```json\n(.*?)\n```", PAGE, flags=re.DOTALL)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving("--slots", "1") as found:
        yield found


def references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(ref := value.get("$ref"), str):
            yield ref
        for inner in value.values():
            yield from references(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from references(inner)


def test_the_page_has_an_example_of_every_request_that_is_answered_in_json() -> None:
    shown = {re.search(r":8080(\S+)", command)[1] for command, _ in EXAMPLES}  # type: ignore[index]
    assert shown == {
        "/judge", "/judge/batch", "/run_code", "/run_jupyter", "/get_prompts", "/submit",
        "/common_evaluate_batch", "/health",
    }  # fmt: skip
    assert PAGE.count("curl") == len(EXAMPLES)


@pytest.mark.parametrize(("command", "answer"), EXAMPLES)
def test_a_curl_line_of_the_page_works_literally(server: Server, command: str, answer: str) -> None:
    here = command.replace(":8080", f":{server.port}")
    done = subprocess.run(["bash", "-c", here], capture_output=True, text=True, check=True)
    found, shown = json.loads(done.stdout), json.loads(answer)
    assert found == shown or {key: found[key] for key in shown} == shown


def test_openapi_describes_every_request_with_models_that_exist(server: Server) -> None:
    found = server.ask("GET", "/openapi.json").json
    assert found["openapi"].startswith("3.1")
    assert set(found["paths"]) == {
        "/judge", "/judge/batch", "/run_code", "/run_jupyter", "/get_prompts", "/submit",
        "/common_evaluate_batch", "/health", "/metrics", "/terms",
    }  # fmt: skip
    schemas = found["components"]["schemas"]
    names = {ref.removeprefix("#/components/schemas/") for ref in references(found)}
    assert names <= set(schemas)
    body = found["paths"]["/run_code"]["post"]["requestBody"]["content"]["application/json"]
    assert body["schema"] == {"$ref": "#/components/schemas/RunRequest"}
    assert set(schemas["RunRequest"]["required"]) == {"code", "language"}
    assert "wall time" in schemas["RunRequest"]["properties"]["run_timeout"]["description"]
    assert schemas["CasesConfig"]["properties"]["provided_data"]
    assert {"verdict", "passed", "total"} <= set(schemas["Execution"]["properties"])


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (
            "/judge",
            {"tests": ["assert f()"], "entry_point": "f", "program": "", "language": "lua"},
        ),
        (
            "/judge",
            {"task": {"inputs": ["1"], "outputs": ["1"], "language": "lua"}, "program": ""},
        ),
        ("/run_code", {"code": "int main() {}", "language": "lua"}),
        (
            "/common_evaluate_batch",
            {
                "completion": "",
                "config": {
                    "language": "lua",
                    "provided_data": {"test_cases": {"input": ["1"], "output": ["1"]}},
                },
            },
        ),
    ],
)
def test_another_language_is_refused_by_name(
    server: Server, path: str, body: dict[str, Any]
) -> None:
    answer = server.post(path, body)
    assert answer.status == 422
    assert "the language 'lua' cannot be judged; known: answer, c, cpp" in answer.json["error"]
