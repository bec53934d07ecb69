"""Judges on several `assay serve` services, in place of a judge of this process."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import math
import os
import time
from collections import deque
from collections.abc import Sequence
from functools import partial

from assay.bounded import BoundedDict
from assay.errors import SandboxError, SettingsError
from assay.judge import AnyJudge, Job, Judge
from assay.judge.base import no_code
from assay.judge.kinds.find import kind_of
from assay.judge.task_fields import require_fields
from assay.judges.service_client import REASON, FullError, LostError, ServiceClient
from assay.judges.terms import (
    KEPT_MB,
    KEPT_TASKS,
    Sendable,
    common_terms,
    require_sendable,
    sendable,
)
from assay.sandbox.limits import Limits
from assay.sync import together
from assay.types import Execution, Verdict, printable

log = logging.getLogger(__name__)
START_SECONDS = 15.0
"""Seconds without any service after which a run does not start. They suffice for services that are
started with it; a wrong URL should not take longer to show."""
PATIENCE = 120.0
"""Seconds without any service after which programs of a run are given up: it may be started again.
"""
LOOK_SECONDS = 2.0
"""Between two looks at a service."""
TRIES = 8
"""Services that may fail one program."""


class ServicePool(AnyJudge):
    """Judges on services. Each service gets as many programs as it has places for. What a service
    fails goes to another one. A service that is lost is looked at until it is back. A service that
    is full gets no more than it takes until the next look.

    servers: their URLs; the environment variable ASSAY_TOKEN holds their token. limits: what one
    run may use, which must be the services' own. allow_forgeable: as Judge.

    Raises SettingsError for a service that refuses or whose judge is another; SandboxError where no
    service answers, and where programs fail too often for want of one.
    """

    def __init__(self, servers: Sequence[str], limits: Limits, allow_forgeable: bool) -> None:
        super().__init__(allow_forgeable)
        self.slots = 1
        self._servers, self._limits = servers, limits
        self._own = common_terms(limits, stop_early=False)
        self._agreed: dict[str, str] = {}
        """The terms of the first service, with its tools: the others must have the same."""
        self._services: list[ServiceClient] = []
        self._queue: deque[tuple[str, asyncio.Future[ServiceClient | None]]] = deque()
        """The keys of tasks whose programs wait, and what gets a service for each."""
        self._tasks: BoundedDict[int, Sendable] = BoundedDict(KEPT_TASKS, KEPT_MB)
        """By the id of a task, which the value holds, so that no other has it."""
        self._looks: list[asyncio.Task[None]] = []
        self._last_seen = 0.0
        """When a service was in use."""

    async def __aenter__(self) -> ServicePool:
        token = os.environ.get("ASSAY_TOKEN", "").strip()
        require_sendable(token, "the environment variable ASSAY_TOKEN")
        self._services = [ServiceClient(url.rstrip("/"), token) for url in self._servers]
        try:
            await self._start()
        except BaseException:
            await self.__aexit__()
            raise
        self._looks = [asyncio.create_task(self._watch(service)) for service in self._services]
        return self

    async def __aexit__(self, *_: object) -> None:
        services, self._services = self._services, []
        running = [*self._looks, *(job for service in services for job in service.jobs)]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        await asyncio.gather(*(service.http.aclose() for service in services))
        self._dispatch()

    async def _run(self, job: Job) -> Execution:
        task, program = job.task, job.program
        if id(task) not in self._tasks:
            require_fields(task)
        if program is None:
            return no_code(sum(kind_of(check).count(check) for check in task.checks))
        self._tasks[id(task)] = sent = self._tasks.get(id(task)) or sendable(task)
        source, key = program.encode("utf-8", "surrogatepass"), bytes.fromhex(sent.key)
        digest = hashlib.blake2b(source, key=key).digest()
        return await self._cache.get_or_run(digest, partial(self._judge, sent, program))

    def with_tools(self) -> Judge:
        """Returns a judge of this process, because services run no tools. What it gets was not
        judged here, so weak isolation is no reason to refuse it.
        """
        return Judge(self._limits, allow_weak=True)

    async def _start(self) -> None:
        """Look at the services until one is in use, for up to START_SECONDS."""
        given_up, has_warned = time.monotonic() + START_SECONDS, False
        while True:
            await together(map(self._look, self._services))
            if any(service.terms for service in self._services):
                self._last_seen = time.monotonic()
                return
            if time.monotonic() > given_up:
                raise SandboxError(
                    f"{self._none_left()}; start `assay serve` there, or correct judge.servers"
                )
            if not has_warned:
                log.warning("%s; waiting up to %g s for it", self._none_left(), START_SECONDS)
                has_warned = True
            await asyncio.sleep(LOOK_SECONDS)

    async def _look(self, service: ServiceClient) -> None:
        """Use the service if it answers. Raises SettingsError as Pool."""
        try:
            terms = await service.offer()
            differing = [
                f"{name} is {printable(terms.judge.get(name, 'nothing'))[:REASON]}, not {value}"
                for name, value in (self._agreed or self._own).items()
                if terms.judge.get(name) != value
            ]
            if differing:
                raise SettingsError(
                    f"its judge differs from the run's ({'; '.join(differing)}); start it with the"
                    " limits of [judge] and the packages that this machine has"
                )
        except (LostError, SettingsError) as error:
            service.lose(str(error))
            if isinstance(error, SettingsError):
                raise SettingsError(f"judge.servers: {service.url}: {error}") from None
        else:
            self._agreed = self._agreed or terms.judge
            service.terms, service.most = terms, math.inf
        self.slots = sum(other.terms.slots for other in self._services if other.terms) or 1

    async def _watch(self, service: ServiceClient) -> None:
        """Look at a service for as long as the pool is open."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            with contextlib.suppress(SettingsError):  # it was started again as another judge
                await self._look(service)
            if not service.terms:  # it may hang with what it has
                for job in service.jobs:
                    job.cancel()
            self._dispatch()

    async def _judge(self, task: Sendable, program: str) -> Execution:
        """The verdict of a service. A program that one fails waits again, before all others."""
        failures, failed = 0, False
        while True:
            service = await self._place(task.key, failed)
            if service is None:
                return Execution(Verdict.INFRA, detail=self._none_left())
            is_known, failed = task.key in service.sent, True
            service.sent.add(task.key)
            request = asyncio.create_task(service.judge(task, program, is_known))
            service.jobs.add(request)
            try:
                return await request
            except FullError:
                service.most = service.in_use - 1
            except LostError as error:
                service.lose(str(error))
                failures += 1
            except asyncio.CancelledError:
                if (ours := asyncio.current_task()) and ours.cancelling():
                    raise
                failures += 1  # the service hung with what it had
            finally:
                request.cancel()
                service.jobs.discard(request)
                service.in_use -= 1
                self._dispatch()
            if failures == TRIES:
                last = f"{service.url}: {service.failure}"
                detail = f"{TRIES} judge services failed, at last {last}"
                return Execution(Verdict.INFRA, detail=detail)

    async def _place(self, key: str, first: bool) -> ServiceClient | None:
        """A place of a service, which is taken from then on; None where there is none for long."""
        turn: asyncio.Future[ServiceClient | None] = asyncio.get_running_loop().create_future()
        self._queue.insert(0 if first else len(self._queue), (key, turn))
        self._dispatch()
        try:
            return await turn
        except asyncio.CancelledError:
            has_place = turn.done() and not turn.cancelled() and not turn.exception()
            if has_place and (service := turn.result()):
                service.in_use -= 1
                self._dispatch()
            raise

    def _dispatch(self) -> None:
        """Give what waits to the services that have places, the least loaded first."""
        if any(service.terms for service in self._services):
            self._last_seen = time.monotonic()
        alone = time.monotonic() - self._last_seen > PATIENCE
        while self._queue:
            free = [service for service in self._services if service.places > 0]
            if not free and not alone and self._services:
                return
            key, turn = self._queue.popleft()
            if not self._services and not turn.done():
                turn.set_exception(SandboxError("the judge is closed"))
            if not turn.done():  # else nobody waits for it any more
                service = min(
                    free,
                    key=lambda candidate: (candidate.load, key not in candidate.sent),
                    default=None,
                )
                if service:
                    service.in_use += 1
                turn.set_result(service)

    def _none_left(self) -> str:
        failures = "; ".join(f"{service.url}: {service.failure}" for service in self._services)
        return f"no judge service answers: {failures}"
