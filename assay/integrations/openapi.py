"""Describes the service for programs: an OpenAPI document of pydantic's own schemas."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any

from pydantic import BaseModel, TypeAdapter
from starlette.routing import Route

from assay.types import Execution

SCHEMAS = "#/components/schemas/{model}"


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


def _json(schema: dict[str, Any]) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}
