"""The calls of one rollout: budgets, retries that join or replay, clients that hang up."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

from assay.agents.calls import CallAnswer, ModelCall, RefusedCallError, Reply
from assay.agents.canonical import canonical
from assay.agents.histories import HistoryCache
from assay.agents.renderer import CallRenderer, RenderedCall
from assay.agents.replies import reply_of
from assay.agents.tree import CallNode, CallTimes, CallTree, LostCall, Unlearned
from assay.engines.base import GenerationRequest, Sampling
from assay.environments import CallLimits
from assay.errors import AssayError
from assay.maths.seeds import derive
from assay.policy.chat import Chat
from assay.types import Completion

GRACE_SECONDS = 20.0
"""How long a call goes on whose client hung up: a retry may join it. The clients of the agents that
were tried wait 0.5 to 8 s before they try again."""
MOST_POLITE = 50
"""Polite answers of a rollout whose budget is used up; then calls are refused."""
MOST_FAILED = 64
"""Failed calls that a retry may still make good."""
OUT_OF_ROOM = "context_length_exceeded"
"""OpenAI's code of a call that is too long for the context."""
FINISHED = "The budget of this conversation is used up. Finish now with what there is."


@dataclass(frozen=True, slots=True)
class ServedPolicy:
    """What samples the replies."""

    generate: Callable[[GenerationRequest, Sampling], Awaitable[Completion]]
    """An engine's call."""
    chat: Chat
    sampling: Sampling
    """How; a request's own wishes are not followed."""
    context_length: int | None = None
    arguments: Mapping[str, Any] = field(default_factory=dict)
    """What the chat template gets beside messages and tools."""
    name: str = "policy"


@dataclass(frozen=True, slots=True)
class Attempt:
    """How a client sends a call: what tells a retry from a new call."""

    digest: bytes
    """Of the request's path and body."""
    key: str = ""
    """Its Idempotency-Key."""
    is_retry: bool = False
    """Whether the client says so (`x-stainless-retry-count`)."""

    def may_be(self, other: Attempt) -> bool:
        """Whether both may be one call."""
        return self.digest == other.digest and (
            not (self.key and other.key) or self.key == other.key
        )


class FinishedCallError(Exception):
    """The call gets a polite answer instead of a reply of the policy, which is not recorded."""


class ClientGoneError(Exception):
    """The client hung up before its answer."""


def sealed() -> RefusedCallError:
    """What a call to a rollout that has ended gets."""
    return RefusedCallError("the rollout has ended", 409, "rollout_sealed")


@dataclass(eq=False, slots=True)
class PendingCall:
    """A call that is sampled, or was."""

    attempt: Attempt
    work: asyncio.Task[CallAnswer]
    nodes: list[CallNode] = field(default_factory=list)
    times: CallTimes = field(default_factory=CallTimes)
    waiting: int = 0
    """Clients that wait for it."""
    departures: int = 0
    """Clients that waited for it and do not any more."""
    delivered: bool = False

    @property
    def is_orphan(self) -> bool:
        """Whether nobody has its answer, and nobody waits for it."""
        return not (self.delivered or self.waiting)


class CallSession:
    """One rollout's calls.

    A call with the body of an earlier one joins it, or gets its answer again, where the request is
    a retry: its header says so, it has the same Idempotency-Key, or the earlier one's client is
    gone without an answer. Any other is sampled anew, though its prompt be the same.
    """

    def __init__(
        self, policy: ServedPolicy, seed: int, limits: CallLimits, *,
        most: int | None = None, grace_seconds: float = GRACE_SECONDS,
    ) -> None:  # fmt: skip
        self.policy, self.seed, self.limits = policy, seed, limits
        self.tree = CallTree(limits.paid_roots, most)
        self.failure: BaseException | None = None
        """Why the engine failed the last call that it could not answer, as long as no retry made it
        good. A fault of the endpoint's own is not among these: it is that call's alone."""
        self.received = self.refused = 0
        self.refusal = ""
        """Why the last of the refused calls was."""
        self.sealed = False
        self._renderer = CallRenderer(policy.chat, policy.arguments)
        self._conversations = HistoryCache()
        self._pending: list[PendingCall] = []
        self._failed: dict[bytes, BaseException] = {}
        self._unretried = Counter[bytes]()
        """By the digest, failed calls that no retry has come for."""
        self._grace, self._most = grace_seconds, most
        self._numbers = count()
        self._polite = self._running = 0
        self.begin()

    def begin(self) -> None:
        """Begin the time of the limits."""
        self._started = time.monotonic()

    @property
    def calls(self) -> int:
        """Replies so far."""
        return len(self.tree.nodes)

    async def answer(
        self, call: ModelCall, attempt: Attempt, hung_up: Callable[[], Awaitable[object]]
    ) -> CallAnswer:
        """The answer to a call; `hung_up` returns when its client has.

        Raises RefusedCallError, FinishedCallError where the budget is used up, ClientGoneError, and
        MachineError or UserError where the engine fails.
        """
        self._require_open()
        if pending := self._earlier(attempt):
            pending.times.retries += 1
        else:
            pending = self._start(call, attempt)
        pending.waiting += 1
        leaving = asyncio.ensure_future(hung_up())
        try:
            await asyncio.wait({pending.work, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if leaving.done() or not pending.work.done():
                raise ClientGoneError
            if pending.work.cancelled():
                self._require_open()
                raise ClientGoneError
            answer = pending.work.result()
            pending.delivered = True
            for node in pending.nodes:
                node.delivered = True
            return answer
        finally:
            leaving.cancel()
            pending.waiting -= 1
            pending.departures += 1
            if not pending.work.done():
                asyncio.get_running_loop().call_later(
                    self._grace, self._give_up, pending, pending.departures
                )

    def refuse(self, error: RefusedCallError) -> None:
        """Note a call that was refused. A conversation that is too long for the context is none:
        that the agent may help as little as the policy.
        """
        if error.code != OUT_OF_ROOM:
            self.refused, self.refusal = self.refused + 1, str(error)

    async def seal(self) -> None:
        """End the rollout: running calls are cancelled, and further ones refused."""
        self.sealed = True
        running = [pending.work for pending in self._pending if not pending.work.done()]
        for work in running:
            work.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    def _require_open(self) -> None:
        if self.sealed:
            raise sealed()

    def _give_up(self, pending: PendingCall, departures: int) -> None:
        is_last = pending.departures == departures  # else a later client's time is running
        if is_last and pending.is_orphan and not pending.work.done():
            self._forget(pending)  # a retry that comes now is sampled anew
            pending.work.cancel()

    def _forget(self, pending: PendingCall) -> None:
        self._pending = [each for each in self._pending if each is not pending]

    def _forget_answers(self) -> None:
        """Keep no answer to a call whose reply the tree has forgotten."""
        if self._most:
            ids = {*map(id, self.tree.nodes)}
            self._pending = [
                each
                for each in self._pending
                if not each.work.done() or ids & {*map(id, each.nodes)}
            ]

    def _earlier(self, attempt: Attempt) -> PendingCall | None:
        """The call of which this attempt is a retry; None for a new one. Raises RefusedCallError
        for another body under the key of an earlier one.
        """
        if attempt.key:
            for pending in self._pending:
                if pending.attempt.key == attempt.key:
                    if pending.attempt.digest != attempt.digest:
                        raise RefusedCallError("the Idempotency-Key is another request's")
                    return pending
        equal = [each for each in self._pending if each.attempt.may_be(attempt)]
        orphans = [each for each in equal if each.is_orphan]
        if not orphans and attempt.is_retry and self._unretried[attempt.digest]:
            self._unretried[attempt.digest] -= 1  # of the call that failed, not of an equal one
            return None
        if orphans or (equal and attempt.is_retry):
            return (orphans or equal)[-1]
        return None

    def _start(self, call: ModelCall, attempt: Attempt) -> PendingCall:
        self._require_budget(call)
        number, began = next(self._numbers), time.monotonic()
        nodes, times = list[CallNode](), CallTimes()
        work = asyncio.ensure_future(self._sample(call, number, nodes, times))
        pending = PendingCall(attempt, work, nodes, times)
        self._running += call.count
        self._pending = [*self._pending, pending][-(self._most or len(self._pending) + 1) :]

        def ended(work: asyncio.Task[CallAnswer]) -> None:
            times.seconds = time.monotonic() - began
            self._running -= call.count
            error = None if work.cancelled() else work.exception()
            if work.cancelled() or error:
                self._forget(pending)
            if error and not isinstance(error, RefusedCallError):
                self._unretried[attempt.digest] += 1
                self._unretried = Counter(dict([*self._unretried.items()][-MOST_FAILED:]))
            if isinstance(error, AssayError) and not isinstance(error, RefusedCallError):
                self._failed[attempt.digest] = error
                self._failed = dict([*self._failed.items()][-MOST_FAILED:])
            elif not (work.cancelled() or error):
                self._failed.pop(attempt.digest, None)
            self.failure = next(reversed(self._failed.values()), None)
            self._forget_answers()

        work.add_done_callback(ended)
        return pending

    def _require_budget(self, call: ModelCall) -> None:
        """Raises FinishedCallError where the budget is used up."""
        limits = self.limits
        if (
            self.calls + self._running + call.count <= limits.calls
            and (limits.tokens is None or self.tree.sampled < limits.tokens)
            and time.monotonic() - self._started < limits.seconds
        ):
            return
        self._polite += 1
        # a text that nobody sampled has no ids, and is not to be scored
        if self._polite > MOST_POLITE or call.ids or not limits.is_polite:
            raise RefusedCallError("the rollout's budget is used up", 409, "budget_used_up")
        raise FinishedCallError

    async def _sample(
        self, call: ModelCall, number: int, nodes: list[CallNode], times: CallTimes
    ) -> CallAnswer:
        """Samples the replies of a call, and remembers them; all or none."""
        conversation = self._conversations.read(call.messages)
        form = self._renderer.call_format(call)
        parent = (
            self.tree.extended_by(call.ids) if call.ids
            else self.tree.parent_of(conversation.digests, lambda: call.call_ids)
        )  # fmt: skip
        rendered = self._renderer.render(call, parent)
        if not rendered.prompt:
            raise RefusedCallError("the messages have no text", param="messages")
        sampling, prompt = self._sampling(rendered), rendered.prompt
        seeds = [derive(self.seed, number, place) for place in range(call.count)]
        lost = list[int]()
        requests = [
            GenerationRequest(prompt, seed, call.stop, self, True, lost.append) for seed in seeds
        ]

        def lose(tokens: int, reason: Unlearned) -> None:
            self.tree.lose(LostCall(number, parent, tokens, reason, times))

        completions = await self._all(requests, sampling, lost, lose)
        try:
            opened = self.policy.chat.opened(prompt)
            replies = [
                reply_of(replace(each, text=opened + each.text), form, call) for each in completions
            ]
            nodes += [
                CallNode(
                    number, parent, conversation.keys, canonical(reply.message), call.tools_key,
                    prompt, reply.completion, rendered.conversation, reply.calls, reply.call_ids,
                    altered=self._is_altered(reply, call), times=times,
                ) for reply in replies
            ]  # fmt: skip
        except Exception:
            lose(sum(each.length for each in completions), Unlearned.MACHINE)
            raise
        for node in nodes:
            self.tree.add(node)
        return CallAnswer(prompt, tuple(replies))

    async def _all(
        self, requests: list[GenerationRequest], sampling: Sampling, lost: list[int],
        lose: Callable[[int, Unlearned], None],
    ) -> list[Completion]:  # fmt: skip
        """The completions of all requests. Where one of them fails or is cancelled, all count as
        lost by `lose`; `lost` has the tokens of those that the engine did not end.
        """
        generate = self.policy.generate
        running = [asyncio.ensure_future(generate(request, sampling)) for request in requests]
        try:
            return await asyncio.gather(*running)
        except BaseException as error:
            for task in running:
                task.cancel()
            try:
                await asyncio.gather(*running, return_exceptions=True)
            finally:
                whole = [task.result().length for task in running
                         if not task.cancelled() and task.exception() is None]  # fmt: skip
                lose(sum(whole + lost), self._reason(error))
            raise

    def _sampling(self, rendered: RenderedCall) -> Sampling:
        """The run's sampling, within the rest of the context. Raises RefusedCallError where no room
        is left.
        """
        sampling, limit = self.policy.sampling, self.policy.context_length
        if limit is None:
            return sampling
        room = limit - len(rendered.prompt)
        if room <= 0:
            raise RefusedCallError(
                f"This model's maximum context length is {limit} tokens, and your messages have"
                f" {len(rendered.prompt)}. Please reduce the length of the messages.",
                400, OUT_OF_ROOM, "messages",
            )  # fmt: skip
        return replace(sampling, max_tokens=min(sampling.max_tokens, room))

    def _reason(self, error: BaseException) -> Unlearned:
        """Why the tokens of a call that ended so are not learned."""
        if not isinstance(error, asyncio.CancelledError):
            return Unlearned.MACHINE
        return Unlearned.SEALED if self.sealed else Unlearned.CLIENT_GONE

    def _is_altered(self, reply: Reply, call: ModelCall) -> bool:
        """Whether the client is shown something else than the tokens say."""
        completion, stops = reply.completion, self.policy.chat.stop_tokens
        by_token = completion.tokens[-1:] and completion.tokens[-1] in stops
        by_string = bool(call.stop) and completion.ended == "stop" and not by_token
        return by_string or reply.lacks_calls
