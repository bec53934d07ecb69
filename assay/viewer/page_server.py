"""The page over HTTP, for this machine only: it answers GET, and writes nothing."""

import signal
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from assay.errors import SettingsError, UserError
from assay.http import AMBIGUOUS
from assay.registry import one_line
from assay.strict_json import strict_json
from assay.viewer.folders import RunsFolder
from assay.viewer.questions import UnknownError, ViewerAnswers

HOST = "127.0.0.1"
NAMES = ("127.0.0.1", "localhost")
"""Hosts that a browser may ask for: with another name, a page elsewhere could ask through DNS."""
PAGE = Path(__file__).parent / "page"
TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:;"
    " base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-store",
}


class Guard:
    """Refuses what does not read, or asks for another host; gives every answer its headers."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        headers = dict(scope["headers"])
        host = headers.get(b"host", b"").decode("latin-1")
        app = self.app
        if headers.keys() >= AMBIGUOUS:
            app = PlainTextResponse("give one length\n", 400, {"Connection": "close"})
        elif scope["method"] not in ("GET", "HEAD"):
            app = PlainTextResponse("this page is only read\n", 405)
        elif host.rpartition(":")[0] not in NAMES and host not in NAMES:
            app = PlainTextResponse("ask for 127.0.0.1 or localhost\n", 403)

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                extra = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
                message["headers"] = [*message["headers"], *extra]
            await send(message)

        await app(scope, receive, send_with_headers)


def assets() -> dict[str, bytes]:
    """The files of the page, by their path."""
    return {
        file.relative_to(PAGE).as_posix(): file.read_bytes()
        for file in sorted(PAGE.rglob("*"))
        if file.suffix in TYPES
    }


def build(folder: RunsFolder) -> ASGIApp:
    """The application: the page's files, and /api/NAME for each question."""
    files, answers = assets(), ViewerAnswers(folder)
    routes = [
        Route(f"/{'' if path == 'index.html' else path}", _file(path, data))
        for path, data in files.items()
    ]
    routes += [Route(f"/api/{name}", _answer(call)) for name, call in answers.by_name.items()]
    return Guard(Starlette(routes=routes))


def _file(path: str, content: bytes) -> Callable[[Request], Response]:
    kind = TYPES[Path(path).suffix]
    return lambda request: Response(content, media_type=kind)


def _answer(call: Callable[[Mapping[str, str]], Any]) -> Callable[[Request], Response]:
    def respond(request: Request) -> Response:
        status, query = 200, dict(request.query_params)
        try:
            answer = call(query)
        except UnknownError as error:
            status, answer = 404, {"error": str(error)}
        except (UserError, OSError) as error:  # a file of the run is damaged
            status, answer = 500, {"error": " ".join(str(error).split())}
        except (ValueError, LookupError) as error:
            status, answer = 400, {"error": f"the question cannot be read: {one_line(error)}"}
        return Response(strict_json(answer), status, media_type="application/json")

    return respond


async def serve(folder: RunsFolder, port: int, announce: Callable[[str], None]) -> None:
    """Serve the page until SIGINT or SIGTERM; port 0 takes a free one. `announce` gets the address.

    Raises SettingsError for a port that is in use.
    """
    try:
        listener = socket.create_server((HOST, port))
    except OSError as error:
        raise SettingsError(
            f"cannot listen on port {port}: {error}; choose another --port"
        ) from None
    with listener:
        config = uvicorn.Config(
            build(folder), lifespan="off", ws="none", log_level="error", access_log=False,
            server_header=False, timeout_graceful_shutdown=1,
        )  # fmt: skip
        announce(f"http://{HOST}:{listener.getsockname()[1]}")
        import pyarrow.dataset  # noqa: F401  half a second, in which the browser starts

        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)  # uvicorn catches and raises them again
        await uvicorn.Server(config).serve(sockets=[listener])
