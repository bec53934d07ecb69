"""The processes that `torchrun` started: a leader, which runs everything, and followers, which
learn with it. The leader sends each call of its learner's to all; all make it.

| | leader (rank 0) | follower |
|---|---|---|
| runs | stages, rollouts, judge, files | `follow` |
| holds | its shard; in host memory, whole weights for servers | its shard |
| ends | when its work is done | when the leader says so or is gone |
"""

import logging
import os
import select
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import partial
from threading import Thread
from typing import Any, TypeVar, cast

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous

from assay.algorithms import Algorithm, algorithms
from assay.config.sections import RunSettings
from assay.distributed.sharded import ShardedRanks
from assay.distributed.whole_copy import generates_with_it, to_host
from assay.errors import AssayError, MachineError
from assay.maths.seeds import derive
from assay.policy.forward import tried_layouts
from assay.policy.load_model import Policy, load_policy
from assay.registry import one_line
from assay.train.learner import Learner, OpenLearner

T = TypeVar("T")
FOREVER = timedelta(days=365)
"""How long followers wait for the next call: the leader may judge for hours meanwhile."""
GRACE = 5.0
"""Seconds in which failed ranks say why."""
SHARED = ("step", "whole_policy", "save", "restore")
"""What every rank does at once."""


class RankJob:
    """The place of this process among the ranks; `minutes` is how long one waits for the others
    within a call.
    """

    def __init__(self, minutes: float) -> None:
        if torch.cuda.is_available():
            torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        self.store, self.number, self.count = next(rendezvous("env://"))
        dist.init_process_group(
            "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo",
            store=PrefixStore("ranks", self.store), rank=self.number, world_size=self.count,
            timeout=timedelta(minutes=minutes),
        )  # fmt: skip
        patience = FOREVER if self.number else timedelta(minutes=minutes)
        self._calls = dist.new_group(backend="gloo", timeout=patience)
        self._made = 0
        """Calls, the same number on every rank."""
        self.broken = False

    def send(self, name: str, *arguments: Any) -> None:
        """Have every follower call this. Raises RuntimeError where one does not listen in time."""
        self._made += 1
        dist.broadcast_object_list([(name, arguments)], src=0, group=self._calls)

    def receive(self) -> tuple[str, tuple[Any, ...]]:
        """The leader's next call. Raises RuntimeError when it is gone."""
        call: list[Any] = [None]
        dist.broadcast_object_list(call, src=0, group=self._calls)
        self._made += 1
        return cast(tuple[str, tuple[Any, ...]], call[0])

    def confess(self, why: str) -> None:
        """Leave word of this rank's failure."""
        order = self.store.add("failures", 1)
        self.store.set(f"failure {self.number}", f"{order} {why}")

    def all_raise(self) -> bool:
        """Whether every rank has raised in this call, as for a loss that is not finite, so that all
        can go on. If only some have, the others wait for them in vain, and the job is broken.
        """
        with suppress(RuntimeError):
            names = [f"call {self._made} raised on {number}" for number in range(self.count)]
            self.store.set(names[self.number], "")
            deadline = time.monotonic() + GRACE
            while time.monotonic() < deadline:
                if self.store.check(names):
                    return True
                time.sleep(0.05)
        self.broken = True
        return False

    def together(self, what: str, call: Callable[[], T]) -> T:
        """Make a `call` that every rank makes. Raises MachineError that names the rank which has
        failed in it.
        """
        try:
            return call()
        except Exception as error:
            torn = isinstance(error, dist.DistError) or "gloo" in str(error).lower()
            if isinstance(error, RuntimeError) and torn:
                raise self.blame(error, what) from error
            self.all_raise()
            raise

    def agree(self, error: Exception | None) -> None:
        """Raise on all ranks if one has an `error`: its own there, elsewhere one that names it."""
        failures: list[str | None] = [None] * self.count
        dist.all_gather_object(failures, error and one_line(error))
        if error:
            raise error
        for number, why in enumerate(failures):
            if why is not None:
                raise MachineError(f"rank {number} has failed: {why}")

    def blame(self, error: Exception, name: str) -> MachineError:
        """Which rank has failed, from what the others leave: who leaves nothing is gone or hangs.

        A rank that fails tears the connections of the others, so the first word counts.
        """
        self.broken = True
        others = {f"failure {number}": number for number in range(1, self.count)}
        deadline = time.monotonic() + GRACE
        while time.monotonic() < deadline and not self.store.check(list(others)):
            time.sleep(0.1)
        words = {n: self.store.get(key) for key, n in others.items() if self.store.check([key])}
        silent = [str(number) for number in others.values() if number not in words]
        if silent:
            return MachineError(f"in {name}: rank {', '.join(silent)} is gone or hangs")
        first = min(words, key=lambda number: int(words[number].split()[0]))
        _, _, why = words[first].decode().partition(" ")
        return MachineError(f"in {name}: rank {first} has failed: {why or one_line(error)}")

    def end(self) -> None:
        """Let the followers end, where nothing is broken: with a rank that hangs, so would this."""
        if not self.broken:
            with suppress(RuntimeError):
                self.send("end")
                dist.destroy_process_group()


class Leader:
    """A learner whose calls every rank makes."""

    def __init__(self, learner: Learner, job: RankJob) -> None:
        self._learner, self._job, self._done = learner, job, 0

    def __getattr__(self, name: str) -> Any:
        return partial(self._together, name) if name in SHARED else getattr(self._learner, name)

    def _together(self, name: str, *arguments: Any) -> Any:
        self._done = arguments[-1] + 1 if name == "step" else self._done
        after = f" after step {self._done}" if self._done else ""
        what = f"step {self._done}" if name == "step" else f"{name}{after}"

        def call() -> Any:
            self._job.send(name, *arguments)
            return getattr(self._learner, name)(*arguments)

        return self._job.together(what, call)


@contextmanager
def leading(minutes: float) -> Iterator[OpenLearner]:
    """Makes learners of all ranks, with whole weights for the engine. Followers end with it.

    Where `torchrun` is killed, its ranks would go on: the leader gets SIGTERM instead, as from it.
    """
    Thread(target=_end_with, args=[os.getppid()], daemon=True).start()
    job = RankJob(minutes)

    def lead(
        settings: RunSettings, algorithm: Algorithm, policy: Policy, steps: int, temperature: float
    ) -> Learner:
        def call() -> Learner:
            job.send("open", settings, steps, temperature)
            return _open(job, settings, steps, temperature, policy)

        return cast(Learner, Leader(job.together("the start", call), job))

    try:
        yield lead
    finally:
        job.end()


def _end_with(parent: int) -> None:
    """Send this process SIGTERM when its parent ends. The kernel's own signal for that comes once
    for each thread of the parent, and the second one would be fatal.
    """
    select.select([os.pidfd_open(parent)], [], [])
    os.kill(os.getpid(), signal.SIGTERM)


def follow(minutes: float) -> None:
    """Make the leader's calls until it ends."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # the leader ends the job
    logging.disable(logging.WARNING)  # and warns for all
    warnings.simplefilter("ignore")
    job = RankJob(minutes)
    learner: Any = None
    name = "the start"
    try:
        while (call := job.receive())[0] != "end":
            name, arguments = call
            try:
                if name == "open":
                    learner = None
                    learner = _open(job, *arguments)
                else:
                    getattr(learner, name)(*arguments)
            except AssayError:
                if not job.all_raise():
                    raise
    except Exception as error:  # noqa: BLE001  whatever it is, the leader says it
        with suppress(RuntimeError):
            job.confess(one_line(error))
        sys.exit(1)
    dist.destroy_process_group()


def _open(
    job: RankJob, settings: RunSettings, steps: int, temperature: float, whole: Policy | None = None
) -> Learner:
    algorithm = algorithms[settings.algorithm["name"]].build(settings.algorithm)
    torch.manual_seed(derive(settings.seed, settings.stage, "policy"))
    policy, error = None, None
    try:
        with warnings.catch_warnings(action="ignore"):  # the leader's whole one has warned
            policy = load_policy(settings.policy, empty=True)
        if whole:
            tried_layouts(whole.model)
            if not generates_with_it(settings, algorithm):
                to_host(whole)
    except Exception as raised:  # noqa: BLE001  raised again on all ranks
        error = raised
    job.agree(error)
    assert policy
    ranks = ShardedRanks(whole, hybrid=settings.learner.hybrid_shard)
    try:
        return Learner(settings, algorithm, policy, steps, temperature, ranks)
    except torch.OutOfMemoryError as error:
        raise MachineError(
            f"{policy.device} has no memory for its shards: use more ranks, policy.lora or"
            " policy.dtype = 'bfloat16'"
        ) from error
