"""The judge over HTTP: /judge and /judge/batch are assay's own, the others SandboxFusion's.

Every refusal is {"error": one line}. A program that fails is never refused: it is a verdict.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import ipaddress
import json
import time
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import asdict, dataclass, replace
from functools import wraps
from typing import Any, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from assay import extract
from assay.bounded import BoundedDict
from assay.errors import AssayError, DataError, MachineError, NotInstalledError, UserError
from assay.http import AMBIGUOUS
from assay.integrations import bodies, notebook, openapi, responses
from assay.integrations.bodies import Work
from assay.integrations.notebook import RESULTS
from assay.integrations.readers import Readers
from assay.integrations.reading import NotJsonError, read
from assay.judge import Job, Judge, Run
from assay.judge.codec_types import CodecError
from assay.judges.terms import FULL, KEPT_MB, KEPT_TASKS, NOT_INSTALLED, terms_of
from assay.languages import language_named
from assay.sandbox import blocks
from assay.sandbox.fair_use import CLIENT
from assay.sandbox.isolation import probe_isolation
from assay.sandbox.kernel import MIB
from assay.sandbox.standalone import standalone
from assay.strict_json import strict_json
from assay.types import Execution, Task, Verdict

T = TypeVar("T")
R = TypeVar("R", bound=bodies.Request)
Endpoint = Callable[..., Awaitable[Response]]
READ_HERE = 16_384
"""Bytes of a body that is read in the event loop: in some milliseconds. Processes read others."""
GONE = 499
"""nginx's status for a client that hung up; only the metrics see it."""
READ_ON = 8
"""An oversized body is read up to this many times the limit: hanging up on unread data would lose
the answer."""
NOTEBOOK = standalone(notebook, blocks)
OPEN = ("/health", "/openapi.json")
"""Paths that need no token: monitoring and documentation."""


SECONDS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
"""Upper bounds of the histogram."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits on clients."""

    waiting: int = 256
    """Requests that may wait for a slot; more are answered 503."""
    body_mb: float = 8
    """Largest request body in MiB; larger ones are answered 413."""
    body_seconds: float = 10
    """Time in which a client must send a body; slower ones are answered 408."""


class Metrics:
    """Requests by path and status, verdicts by kind, load, and the time that requests took."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self.requests = Counter(
            "assay_requests", "Requests answered.", ["path", "status"], registry=registry
        )
        self.verdicts = Counter(
            "assay_verdicts", "Programs judged.", ["verdict"], registry=registry
        )
        self.running = Gauge("assay_running", "Requests whose programs run.", registry=registry)
        self.waiting = Gauge("assay_waiting", "Requests that wait for a slot.", registry=registry)
        self.seconds = Histogram(
            "assay_request_seconds",
            "Time to an answer.",
            buckets=SECONDS,
            registry=registry,
        )


class Service:
    """The endpoints of one open judge."""

    def __init__(self, judge: Judge, bounds: Bounds, readers: Readers) -> None:
        self.judge = judge
        self.readers = readers
        self.bounds = bounds
        self.metrics = Metrics()
        self.tasks: BoundedDict[str, Task] = BoundedDict(KEPT_TASKS, KEPT_MB)
        self.admitted = 0

    async def judge_one(self, request: Request, work: Work) -> Response:
        """Judge one program."""
        if isinstance(work.request, bodies.JudgeRequest):
            job = work.request.job(sent=self.tasks)
        else:
            (job,) = work.jobs
            if work.key is not None:
                job = replace(job, task=self.tasks.setdefault(work.key, job.task))
        execution = await self.unless_gone(request, self.judge.run(job))
        return answer(asdict(self.counted(execution)))

    async def judge_many(self, request: Request, work: Work) -> Response:
        """Judge many programs; answers a line of JSON for each as it ends, with its index."""
        jobs = work.jobs

        async def lines() -> AsyncIterator[str]:
            with self.place():
                yield ""
                try:
                    async for index, execution in self.judge.stream(jobs, skip_refused=True):
                        row = {"index": index, **asdict(self.counted(execution))}
                        yield strict_json(row) + "\n"
                except AssayError as error:
                    yield json.dumps({"error": str(error)}) + "\n"

        stream = lines()
        await anext(stream)  # takes the place: a full service refuses before the answer starts
        return StreamingResponse(stream, media_type="application/x-ndjson")

    async def run_code(self, request: Request, work: Work) -> Response:
        """Run a program on standard input, as SandboxFusion does."""
        body = request_of(work, bodies.RunRequest)
        folder = body.folder(language_named(body.language).source)
        run = self.judge.execute(
            body.code, body.stdin or "", body.run_timeout, body.language,
            folder if folder.files or folder.fetch else None,
        )  # fmt: skip
        return answer(responses.run_answer(await self.finished(request, run)))

    async def run_jupyter(self, request: Request, work: Work) -> Response:
        """Run a notebook's cells, as SandboxFusion does; a cell that raises ends none after it."""
        body = request_of(work, bodies.JupyterRequest)
        folder = body.folder(language_named("python").source, RESULTS)
        cells = json.dumps([body.cells, body.cell_timeout])
        run = self.judge.execute(NOTEBOOK, cells, body.total_timeout, folder=folder)
        return answer(responses.jupyter_answer(await self.finished(request, run), len(body.cells)))

    async def finished(self, request: Request, work: Coroutine[Any, Any, Run]) -> Run:
        """What came of a program, counted. Raises HTTPException where its files are too large."""
        run = await self.unless_gone(request, work)
        if sum(map(len, run.files.values())) > self.bounds.body_mb * MIB:
            raise HTTPException(
                413, f"the files to fetch are larger than {self.bounds.body_mb:g} MiB"
            )
        self.counted(run.execution)
        return run

    async def get_prompts(self, request: Request, work: Work) -> Response:
        """The prompts of a task set, as SandboxFusion gives them."""
        body = request_of(work, bodies.PromptsRequest)
        tasks = await self.tasks_of(request, body.dataset)
        return answer(responses.prompts_answer(tasks.values(), body))

    async def submit(self, request: Request, work: Work) -> Response:
        """Judge a completion on a task of a task set, as SandboxFusion does."""
        body = request_of(work, bodies.SubmitRequest)
        task = (await self.tasks_of(request, body.dataset)).get(str(body.id))
        if task is None:
            raise DataError(f"id: {body.dataset!r} has no task {body.id!r}; see /get_prompts")
        program = extract.program(task, body.completion)
        execution = await self.unless_gone(request, self.judge.run(Job(task, program)))
        return answer(responses.submit_answer(body, task, program, self.counted(execution)))

    async def evaluate(self, request: Request, work: Work) -> Response:
        """Judge a completion on test cases, as SandboxFusion does."""
        body = request_of(work, bodies.CasesRequest)
        every = bool(body.config.extra and body.config.extra.run_all_cases)
        executions = await self.unless_gone(request, self.each_case(work.jobs, every))
        return answer(responses.cases_answer(body, work.program, executions))

    async def tasks_of(self, request: Request, dataset: str) -> dict[str, Task]:
        """The tasks of a set by their ids."""
        return await self.unless_gone(request, asyncio.to_thread(bodies.tasks_of, dataset))

    async def each_case(self, jobs: Sequence[Job], to_the_end: bool) -> list[Execution]:
        """The executions in order of the cases; without `to_the_end` up to the first failure."""
        if to_the_end:
            return list(map(self.counted, await self.judge.all(jobs)))
        executions: list[Execution] = []
        for job in jobs:
            executions.append(self.counted(await self.judge.run(job)))
            if executions[-1].verdict is not Verdict.PASS:
                break
        return executions

    async def health(self, request: Request) -> Response:
        """Whether the service can judge, and its load."""
        broken, tier = self.judge.broken, probe_isolation().tier
        state = {"ok": not broken, "tier": tier, "slots": self.judge.slots, **self.load()}
        return answer(state | ({"error": broken} if broken else {}), 503 if broken else 200)

    async def terms(self, request: Request) -> Response:
        """The number of slots, and all that verdicts depend on beside task and program."""
        return answer(asdict(await asyncio.to_thread(terms_of, self.judge)))

    async def show_metrics(self, request: Request) -> Response:
        """Metrics for Prometheus."""
        load = self.load()
        self.metrics.running.set(load["running"])
        self.metrics.waiting.set(load["waiting"])
        return PlainTextResponse(generate_latest(self.metrics.registry))

    def load(self) -> dict[str, int]:
        """Numbers of requests that run and that wait."""
        running = min(self.admitted, self.judge.slots)
        return {"running": running, "waiting": self.admitted - running}

    def counted(self, execution: Execution) -> Execution:
        """The execution, after its verdict was counted."""
        self.metrics.verdicts.labels(execution.verdict).inc()
        return execution

    @contextlib.contextmanager
    def place(self) -> Iterator[None]:
        """A place for one request while it is judged. Raises HTTPException 503 if there is none."""
        if self.admitted >= self.judge.slots + self.bounds.waiting:
            raise HTTPException(
                503, f"{self.bounds.waiting} {FULL}; try again", {"Retry-After": "1"}
            )

        self.admitted += 1
        try:
            yield
        finally:
            self.admitted -= 1

    async def work(self, request: Request, kind: type[bodies.Request]) -> Work:
        """What the request asks for. Raises HTTPException for a body that is no JSON, too large or
        too slow, DataError for what it holds.
        """
        form, _, _ = request.headers.get("content-type", "").partition(";")
        if form.strip().lower() != "application/json":  # no web page can send it, unasked
            raise HTTPException(415, "send JSON, with Content-Type: application/json")
        body = bytes(await self.body(request))
        if len(body) <= READ_HERE:
            return read(kind.__name__, body)
        reading = await self.unless_gone(
            request,
            self.readers.read(kind.__name__, body, self.judge.limits, self.judge.stop_early),
        )
        if reading.work.key not in self.tasks:
            for prepared in reading.prepared:
                self.judge.adopt(prepared)
        return reading.work

    async def body(self, request: Request) -> bytearray:
        """The body. Raises HTTPException if it is too large, too slow, or the client hangs up."""
        most, closing = int(self.bounds.body_mb * MIB), {"Connection": "close"}
        body, size = bytearray(), 0
        try:
            async with asyncio.timeout(self.bounds.body_seconds):
                async for chunk in request.stream():
                    size += len(chunk)
                    body += chunk if size <= most else b""
                    if size > READ_ON * most:
                        break
        except TimeoutError:
            slow = f"the body did not arrive within {self.bounds.body_seconds:g} s"
            raise HTTPException(408, slow, closing) from None
        except ClientDisconnect:
            raise HTTPException(GONE, "the client hung up") from None
        if size > most:
            raise HTTPException(
                413, f"the body is larger than {self.bounds.body_mb:g} MiB", closing
            )
        return body

    async def unless_gone(self, request: Request, work: Coroutine[Any, Any, T]) -> T:
        """The result of `work`, which takes a place. If the client hangs up: cancels it, raises
        HTTPException 499.
        """
        with contextlib.closing(work), self.place():
            job = asyncio.create_task(work)
            gone = asyncio.create_task(_hung_up(request))
            try:
                await asyncio.wait((job, gone), return_when=asyncio.FIRST_COMPLETED)
                if not job.done():
                    raise HTTPException(GONE, "the client hung up")
                return job.result()
            finally:
                job.cancel()
                gone.cancel()
                await asyncio.gather(job, gone, return_exceptions=True)


def front(app: ASGIApp, paths: frozenset[str], metrics: Metrics, token: str | None) -> ASGIApp:
    """The application behind the token check, with every request counted and timed."""
    expected = None if token is None else f"Bearer {token}".encode()

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        started, status = time.monotonic(), 500

        async def watched(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        CLIENT.set(client_of(scope))
        headers = dict(scope["headers"])
        header = headers.get(b"authorization", b"")
        path = scope["path"] if scope["path"] in paths else "other"
        answering = app
        if headers.keys() >= AMBIGUOUS:
            both = "send Content-Length or Transfer-Encoding, not both"
            answering = refused(400, both, {"Connection": "close"})
        elif not (expected is None or path in OPEN or hmac.compare_digest(header, expected)):
            answering = refused(401, "this service needs its token, as `Authorization: Bearer ...`")
        try:
            await answering(scope, receive, watched)
        finally:
            metrics.requests.labels(path, status).inc()
            metrics.seconds.observe(time.monotonic() - started)

    return serve


def build(judge: Judge, bounds: Bounds, readers: Readers, token: str | None = None) -> ASGIApp:
    """The application over an open judge."""
    service = Service(judge, bounds, readers)
    posts: dict[str, tuple[Endpoint, type[bodies.Request]]] = {
        "/judge": (service.judge_one, bodies.JudgeRequest),
        "/judge/batch": (service.judge_many, bodies.BatchRequest),
        "/run_code": (service.run_code, bodies.RunRequest),
        "/run_jupyter": (service.run_jupyter, bodies.JupyterRequest),
        "/get_prompts": (service.get_prompts, bodies.PromptsRequest),
        "/submit": (service.submit, bodies.SubmitRequest),
        "/common_evaluate_batch": (service.evaluate, bodies.CasesRequest),
    }

    def parsed(endpoint: Endpoint, model: type[bodies.Request]) -> Endpoint:
        @wraps(endpoint)
        async def serve(request: Request) -> Response:
            return await endpoint(request, await service.work(request, model))

        return serve

    routes = [Route(path, parsed(*post), methods=["POST"]) for path, post in posts.items()]
    routes += [Route("/health", service.health), Route("/metrics", service.show_metrics)]
    routes.append(Route("/terms", service.terms))
    described = openapi.document(routes, {path: model for path, (_, model) in posts.items()})
    routes.append(Route("/openapi.json", lambda request: answer(described)))
    app = Starlette(
        routes=routes,
        exception_handlers={
            HTTPException: lambda request, error: refused(
                error.status_code, error.detail, error.headers
            ),
            NotJsonError: lambda request, error: refused(400, str(error)),
            bodies.UnknownTaskError: lambda request, error: refused(404, str(error)),
            UserError: lambda request, error: refused(422, str(error)),
            NotInstalledError: lambda request, error: refused(NOT_INSTALLED, str(error)),
            CodecError: lambda request, error: refused(422, str(error)),
            MachineError: lambda request, error: refused(503, str(error), {"Retry-After": "1"}),
            RecursionError: lambda request, error: refused(422, "the request is nested too deeply"),
            UnicodeEncodeError: lambda request, error: refused(
                422, "the request holds half a character (a surrogate)"
            ),
            500: lambda request, error: refused(500, "the service failed; its log says why"),
        },
    )
    return front(app, frozenset(route.path for route in routes), service.metrics, token)


def client_of(scope: Scope) -> str:
    """Who sends a request, for fairness: the address that the connection comes from. Of IPv6's only
    the first half, since one machine may have all others of its network.
    """
    host, _ = scope.get("client") or ("", 0)
    if ":" not in host:
        return str(host)
    address = ipaddress.IPv6Address(host)
    return str(address.ipv4_mapped or f"{int(address) >> 64:x}")


def answer(
    content: object, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """JSON in ASCII: programs may print text that UTF-8 cannot encode."""
    return Response(strict_json(content), status, headers, media_type="application/json")


def refused(status: int, why: str, headers: Mapping[str, str] | None = None) -> Response:
    """The answer to a request that is refused: one line with the reason."""
    return answer({"error": " ".join(why.split())[:500]}, status, headers)


def request_of(work: Work, kind: type[R]) -> R:
    """The request of which the work is made."""
    assert isinstance(work.request, kind)
    return work.request


async def _hung_up(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
