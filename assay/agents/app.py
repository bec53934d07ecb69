"""The endpoint's HTTP application: it finds the rollout of a key, and speaks the client's dialect.

It has no route that ends, reads or changes a rollout: those would be the policy's to call.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Awaitable, Callable, Mapping
from hashlib import blake2b
from math import isfinite
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from assay.agents.calls import CallAnswer, RefusedCallError, Reply
from assay.agents.canonical import MOST_DEPTH, is_deep
from assay.agents.dialects import AnsweredBody, Dialect
from assay.agents.dialects.chat_completions import chat_completions
from assay.agents.dialects.generate import generate
from assay.agents.dialects.messages import messages
from assay.agents.dialects.responses import responses
from assay.agents.session import (
    FINISHED,
    OUT_OF_ROOM,
    Attempt,
    CallSession,
    ClientGoneError,
    FinishedCallError,
    sealed,
)
from assay.errors import AssayError
from assay.strict_json import require_portable, strict_json
from assay.types import Completion

log = logging.getLogger(__name__)
DIALECTS: tuple[Dialect, ...] = (chat_completions, responses, messages, generate)
LARGEST = 2**26
"""Bytes of the longest request."""
BYTES_PER_TOKEN, SHORTEST = 64, 2**16
"""A request of more bytes for each token of the context, but at least so many, cannot fit into it:
it is refused before anything is parsed."""
DOUBTFUL = (b"\\ud", b"\\uD", b"\xed", b"\0")
"""Without these bytes a body has no half of a surrogate pair, in ASCII or in UTF-8."""
GONE = 499
"""nginx's status for a client that hung up; nobody sees it."""
KEY_HEADERS = ("x-api-key", "api-key")
"""Where a key may stand besides the path and `Authorization: Bearer`."""
PREFIXES = ("", "/rollout/{key}")
POLITE = Reply(FINISHED, "", (), (), Completion(FINISHED, (), (), "stop", ()))
"""The reply where the budget is used up; it is none of the policy's, and not recorded."""


def session_of(request: Request, sessions: Mapping[str, CallSession | None]) -> CallSession:
    """The rollout whose key a request has, in its path or else in a header. Raises RefusedCallError
    without a right one, and for a rollout that has ended, which is None.
    """
    headers = request.headers
    bearer = headers.get("authorization", "")
    keys = [request.path_params.get("key"), bearer[7:] if bearer[:7].lower() == "bearer " else ""]
    key = next(filter(None, [*keys, *map(headers.get, KEY_HEADERS)]), "")
    if session := sessions.get(key):
        return session
    if key in sessions:
        raise sealed()
    raise RefusedCallError("Incorrect API key provided.", 401, "invalid_api_key")


async def body_of(request: Request, context_length: int | None) -> bytes:
    """The body. Raises RefusedCallError for one that is too large, ClientGoneError."""
    body = bytearray()
    most = max(SHORTEST, BYTES_PER_TOKEN * context_length) if context_length else LARGEST
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > LARGEST:
                raise RefusedCallError(f"the body is larger than {LARGEST} bytes", 413)
            if len(body) > most:
                raise RefusedCallError(
                    f"This model's maximum context length is {context_length} tokens, and your"
                    f" request has more than {most} bytes. Please reduce its length.",
                    400, OUT_OF_ROOM, "messages",
                )  # fmt: skip
    except ClientDisconnect:
        raise ClientGoneError from None
    return bytes(body)


def parsed(body: bytes) -> dict[str, Any]:
    """The object of JSON that a body is. Raises RefusedCallError."""
    try:
        data = json.loads(body, parse_float=_finite, parse_constant=_finite)
        if any(mark in body for mark in DOUBTFUL):
            require_portable(data)
    except (ValueError, RecursionError) as error:
        raise RefusedCallError(f"the body is no JSON: {str(error)[:200]}") from None
    if not isinstance(data, dict):
        raise RefusedCallError("the body is no object of JSON")
    if is_deep(data):
        raise RefusedCallError(f"the body is nested deeper than {MOST_DEPTH} lists and objects")
    return data


def _finite(number: str) -> float:
    """A number of JSON. Raises ValueError for NaN, and for one that is too large for a float."""
    if not isfinite(value := float(number)):
        raise ValueError(f"{number[:20]} is no finite number")
    return value


def attempt_of(request: Request, body: bytes) -> Attempt:
    """What tells whether a request is a retry. The path without its key is part of it."""
    path = request.url.path.rpartition("/v1/")[2]
    digest = blake2b(path.encode() + b"\0" + body, digest_size=16).digest()
    retries = request.headers.get("x-stainless-retry-count", "0")
    key = request.headers.get("idempotency-key", "")
    return Attempt(digest, key, re.fullmatch("0*[1-9][0-9]*", retries) is not None)


def answered(content: object, status: int = 200) -> Response:
    """JSON in ASCII. A client need not try again what is the request's own fault."""
    headers = {"x-should-retry": "false"} if 400 <= status < 500 else {}
    headers |= {"Retry-After": "1"} if status == 503 else {}
    return Response(strict_json(content), status, headers, media_type="application/json")


def refused(dialect: Dialect, error: Exception) -> Response:
    """The answer to a call that fails, in the caller's dialect."""
    match error:
        case RefusedCallError():
            content = dialect.refusal(error.status, str(error), error.code, error.param)
            return answered(content, error.status)
        case ClientGoneError():
            return Response(status_code=GONE)
        case AssayError():
            return answered(dialect.refusal(503, str(error), None, None), 503)
        case _:
            log.error("an agent's call failed", exc_info=error)
            message = "the endpoint failed; its log says why"
            return answered(dialect.refusal(500, message, None, None), 500)


def speak(
    dialect: Dialect, sessions: Mapping[str, CallSession | None]
) -> Callable[[Request], Awaitable[Response]]:
    """The endpoint of a dialect."""

    async def serve(request: Request) -> Response:
        async def hung_up() -> None:
            while (await request.receive())["type"] != "http.disconnect":
                pass

        try:
            session = session_of(request, sessions)
        except RefusedCallError as error:
            return refused(dialect, error)
        session.received += 1
        try:
            raw = await body_of(request, session.policy.context_length)
            body = parsed(raw)
            call = dialect.read(body)
            try:
                answer = await session.answer(call, attempt_of(request, raw), hung_up)
            except FinishedCallError:
                answer = CallAnswer((), (POLITE,) * call.count)
            policy = session.policy
            content = dialect.write(AnsweredBody(body, answer, policy.name, policy.chat))
            if body.get("stream"):
                stream = [event.encode() for event in dialect.events(content, body)]
                return StreamingResponse(iter(stream), media_type="text/event-stream")
            return answered(content)
        except Exception as error:  # noqa: BLE001  each is an answer
            if isinstance(error, RefusedCallError):
                session.refuse(error)
            return refused(dialect, error)

    return serve


def build(sessions: Mapping[str, CallSession | None]) -> Starlette:
    """The application over open sessions by their keys."""

    async def models(request: Request) -> Response:
        try:
            policy = session_of(request, sessions).policy
        except RefusedCallError as error:
            return refused(chat_completions, error)
        model = {"id": policy.name, "object": "model", "created": 0, "owned_by": "assay",
                 "max_model_len": policy.context_length}  # fmt: skip
        return answered({"object": "list", "data": [model]})

    async def health(request: Request) -> Response:
        return answered({"ok": True})

    routes = [Route("/health", health)]
    for prefix in PREFIXES:
        routes.append(Route(f"{prefix}/v1/models", models))
        routes += [
            Route(f"{prefix}{each.path}", speak(each, sessions), methods=["POST"])
            for each in DIALECTS
        ]

    def unknown(request: Request, error: Exception) -> Response:
        status = error.status_code if isinstance(error, HTTPException) else 500
        path = request.url.path
        dialect = next((each for each in DIALECTS if each.path in path), chat_completions)
        return answered(dialect.refusal(status, "there is no such route", None, None), status)

    return Starlette(routes=routes, exception_handlers={HTTPException: unknown})
