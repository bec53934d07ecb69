"""Describes the service: an OpenAPI document, and the same as a plain HTML page."""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping, Sequence
from html import escape
from importlib.metadata import version
from typing import Any

from pydantic import BaseModel, TypeAdapter
from starlette.routing import Route

from assay.types import Execution

SCHEMAS = "#/components/schemas/{model}"
HEAD = """<!doctype html><meta charset="utf-8"><title>assay serve</title>
<style>body { font: 16px sans-serif; max-width: 50em; margin: 2em auto }</style>
<h1>assay serve</h1><p>The judge over HTTP, described for programs in
<a href="/openapi.json">/openapi.json</a>. A refusal is {"error": one line}.</p>"""


def document(routes: Sequence[Route], requests: Mapping[str, type[BaseModel]]) -> dict[str, Any]:
    """The OpenAPI document of the endpoints, from their docstrings and the models of `requests`."""
    kinds: dict[str, Any] = {"Execution": Execution, **requests}
    references, schemas = TypeAdapter.json_schemas(
        [(name, "validation", TypeAdapter(kind)) for name, kind in kinds.items()],
        ref_template=SCHEMAS,
    )
    content = {name: _json(schema) for (name, _), schema in references.items()}
    paths = {}
    for route in routes:
        answer: dict[str, Any] = {"description": "The answer"}
        if route.path == "/judge":
            answer["content"] = content["Execution"]
        summary = inspect.getdoc(route.endpoint)
        operation: dict[str, Any] = {"responses": {"200": answer}, "summary": summary}
        if route.path in requests:
            operation["requestBody"] = {"required": True, "content": content[route.path]}
        paths[route.path] = {"post" if route.path in requests else "get": operation}
    info = {"title": "assay serve", "version": version("assay")}
    components = {"schemas": schemas["$defs"]}
    return {"openapi": "3.1.0", "info": info, "paths": paths, "components": components}


def page(found: dict[str, Any]) -> str:
    """An OpenAPI document as an HTML page, which needs no script and no network."""
    parts = [HEAD]
    for path, methods in found["paths"].items():
        for method, operation in methods.items():
            parts.append(f"<h2>{method.upper()} {path}</h2><p>{escape(operation['summary'])}</p>")
    for name, schema in found["components"]["schemas"].items():
        parts.append(f"<h3>{name}</h3><pre>{escape(json.dumps(schema, indent=1))}</pre>")
    return "\n".join(parts)


def _json(schema: dict[str, Any]) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}
