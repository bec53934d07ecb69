"""What replies of an endpoint show of it. Nothing here asks anything."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations
from statistics import median
from typing import Literal

from assay.endpoint_check.scored_reply import ScoredReply

SENTINEL = -9999.0
"""What vLLM gives for minus infinity, which JSON lacks. No token with it can be sampled."""
NOISE = 0.05
"""Log-probabilities that differ by less may be equal: kernels in bfloat16 depend on the batch."""
SURE = -0.1
"""A token with a higher log-probability has nearly the same at each temperature."""
LOW = 0.7
"""The temperature of the probe, beside 1."""
COMPARED = 8
"""Tokens of a reply that show whether replies differ. Greedy decoding diverges later, by noise."""
CHANCE = 0.05
Answer = Literal["ok", "no", "?"]


@dataclass(frozen=True, slots=True)
class EndpointFinding:
    """One property of an endpoint."""

    name: str
    answer: Answer
    """`?` where the replies do not show it."""
    evidence: str
    advice: str = ""
    """What to do, unless it is ok."""


@dataclass(frozen=True, slots=True)
class ProbedReplies:
    """Replies to one prompt."""

    sampled: Sequence[ScoredReply]
    """At temperature 1, each with a seed of its own."""
    cooler: Sequence[ScoredReply]
    """The same at temperature 0.7."""
    greedy: Sequence[ScoredReply]
    """At temperature 0, each with a seed of its own."""
    repeated: ScoredReply
    """At temperature 1, with the first seed again."""
    not_taken: Sequence[str] = field(default=())
    """Parameters that the endpoint refuses."""

    @property
    def all(self) -> list[ScoredReply]:
        """Every reply."""
        return [*self.sampled, *self.cooler, *self.greedy, self.repeated]


def findings(replies: ProbedReplies) -> list[EndpointFinding]:
    """All that the replies show. Numbers that are missing or absurd show nothing further."""
    logprobs = log_probabilities(replies)
    ids = token_ids(replies)
    rows = [logprobs, ids]
    if logprobs.answer == "ok":
        belonging = alignment(replies)
        rows.append(belonging)
        if belonging.answer != "no":
            rows.append(scaling(replies))
    return [*rows, seed_following(replies), stop_token(replies)]


def log_probabilities(replies: ProbedReplies) -> EndpointFinding:
    """Whether each token has a log-probability that a sampled token can have."""
    name = "log-probabilities"
    advice = "turn on `logprobs` of the server, for each sampled token"
    without = [reply for reply in replies.all if reply.logprobs is None]
    if without:
        evidence = f"{len(without)} of {len(replies.all)} replies have none"
        return EndpointFinding(name, "no", evidence, advice)
    for reply in replies.all:
        values, tokens = reply.logprobs or (), reply.tokens
        if len(values) != len(tokens):
            evidence = f"{len(values)} for {len(tokens)} tokens"
            return EndpointFinding(name, "no", evidence, advice)
        for place, value in enumerate(values):
            problem = _problem(value)
            if problem:
                evidence = f"{value} at token {place} is {problem}"
                advice = "have the server give the number with which it sampled the token"
                return EndpointFinding(name, "no", evidence, advice)
    count = sum(len(reply.tokens) for reply in replies.all)
    return EndpointFinding(name, "ok", f"one for each of {count} tokens, all finite")


def _problem(value: float | None) -> str:
    if value is None or not math.isfinite(value):
        return "no finite number"
    if value <= SENTINEL:
        return "a sentinel"
    return "above 0" if value > NOISE else ""


def token_ids(replies: ProbedReplies) -> EndpointFinding:
    """Whether the ids came, in `token_ids` or as names of tokens, and both agree."""
    name, advice = "token ids", "serve with vLLM, or another server that takes `return_token_ids`"
    if any(reply.ids is None and reply.named_ids is None for reply in replies.all):
        refused = ", ".join(each for each in replies.not_taken if "token_ids" in each)
        evidence = f"none; it refused a request with {refused}" if refused else "none"
        return EndpointFinding(name, "no", evidence, advice)
    for reply in replies.all:
        if reply.ids and reply.named_ids and reply.ids != reply.named_ids:
            pairs = zip(reply.ids, reply.named_ids, strict=False)
            place = next((n for n, pair in enumerate(pairs) if pair[0] != pair[1]), 0)
            evidence = f"token {place} of `token_ids` has another id than its log-probability"
            return EndpointFinding(name, "no", evidence, "report it to the server's developers")
    where = "`token_ids`" if replies.sampled[0].ids else "the names `token_id:N`"
    prompts = all(reply.prompt_ids for reply in replies.all)
    prompt = "of the prompt too" if prompts else "none of the prompt: the trainer must render it"
    return EndpointFinding(name, "ok", f"in {where}, {prompt}")


def alignment(replies: ProbedReplies) -> EndpointFinding:
    """Whether a log-probability belongs to the token at its place, and not to a neighbour.

    Two replies to one prompt have equal log-probabilities up to the last common token, and other
    ones at the first token that differs. Shifted numbers part a place earlier or later. What both
    have in common stays hidden: the numbers of other weights, say, or tokens shifted likewise.
    """
    name = "they belong together"
    advice = "report it to the server's developers: each number stands at another token"
    before, at = list[float](), list[float]()
    for group in (replies.sampled, replies.cooler):
        for first, second in combinations(group, 2):
            place = _parting(first.tokens, second.tokens)
            if place is None:
                continue
            ours, theirs = first.numbers, second.numbers
            at.append(abs(ours[place] - theirs[place]))
            before += [abs(ours[place - 1] - theirs[place - 1])] if place else []
    if not at:
        return EndpointFinding(
            name, "?", "all replies to one prompt are equal", "let it sample, with a temperature"
        )
    if median(at) <= NOISE:
        evidence = "after one beginning, different tokens have equal numbers: shifted by one"
        return EndpointFinding(name, "no", evidence, advice)
    if not before:
        return EndpointFinding(
            name, "?", "no two replies begin with the same token",
            "try again with a model that is surer of its first token",
        )  # fmt: skip
    if median(before) > NOISE:
        evidence = "the last token of one beginning has different numbers: shifted by one"
        return EndpointFinding(name, "no", evidence, advice)
    evidence = f"{len(before)} pairs of replies part at the same place in tokens and numbers"
    return EndpointFinding(name, "ok", evidence)


def _parting(first: Sequence[object], second: Sequence[object]) -> int | None:
    """The first place where two sequences differ; None where one begins the other."""
    for place, (ours, theirs) in enumerate(zip(first, second, strict=False)):
        if ours != theirs:
            return place
    return None


def scaling(replies: ProbedReplies) -> EndpointFinding:
    """Whether log-probabilities are processed, as sampling divides the logits by the temperature,
    or raw: then a token has the same at each temperature.

    It has the same, too, where the endpoint follows no temperature of a request. Then nothing is
    known of the numbers.
    """
    name = "processed, not raw"
    warm, cool = numbers_by_prefix(replies.sampled), numbers_by_prefix(replies.cooler)
    shared = [key for key in warm.keys() & cool.keys() if warm[key] < SURE]
    if shared:
        key = max(shared, key=lambda key: abs(warm[key] - cool[key]))
        example = f"{cool[key]:.4f} at temperature {LOW}, {warm[key]:.4f} at 1, for the same token"
        if median(abs(warm[key] - cool[key]) for key in shared) > NOISE:
            return EndpointFinding(name, "ok", example)
        if follows_temperature(replies):
            advice = "start vLLM with `--logprobs-mode processed_logprobs`"
            return EndpointFinding(name, "no", example, advice)
    elif follows_temperature(replies):
        evidence = f"no unsure token was sampled at {LOW} and at 1 after the same ones"
        return EndpointFinding(name, "?", evidence, "try again")
    return EndpointFinding(
        name, "?", "the replies do not show that it follows the temperature of a request",
        "let it sample at temperature 1, where processed and raw are the same",
    )  # fmt: skip


def follows_temperature(replies: ProbedReplies) -> bool:
    """Whether greedy replies are equal, and are so by chance in less than `CHANCE` of all cases,
    if they are sampled as those at temperature 1.
    """
    greedy, sampled = map(_beginnings, (replies.greedy, replies.sampled))
    shares = [count / len(replies.sampled) for count in sampled.values()]
    chance = sum(share ** len(replies.greedy) for share in shares)
    return len(greedy) == 1 and chance < CHANCE


def _beginnings(replies: Sequence[ScoredReply]) -> Counter[tuple[object, ...]]:
    return Counter(tuple(reply.tokens[:COMPARED]) for reply in replies)


def numbers_by_prefix(replies: Sequence[ScoredReply]) -> dict[tuple[object, ...], float]:
    """The log-probability of each token, by the tokens up to it."""
    return {
        tuple(reply.tokens[: place + 1]): number
        for reply in replies
        for place, number in enumerate(reply.numbers)
    }


def seed_following(replies: ProbedReplies) -> EndpointFinding:
    """Whether a seed gives the same reply twice. Training does without."""
    first, *others = [(reply.text, *reply.tokens) for reply in replies.sampled]
    if all(other == first for other in others):
        return EndpointFinding("seed", "?", "all seeds give the same reply")
    if (replies.repeated.text, *replies.repeated.tokens) == first:
        return EndpointFinding("seed", "ok", "the same seed gives the same reply")
    return EndpointFinding(
        "seed", "no", "the same seed gives another reply", "do not expect a run to repeat"
    )


def stop_token(replies: ProbedReplies) -> EndpointFinding:
    """Whether the token that ended a reply is among its tokens, so that it can be learned."""
    name = "stop token"
    ended = [reply for reply in replies.all if reply.ended == "stop" and reply.tokens]
    cut = EndpointFinding(
        name, "no", "cut off", "without it a policy does not learn to end; vLLM keeps it"
    )
    if any(reply.usage == len(reply.tokens) + 1 for reply in ended):
        return cut
    texts = [reply for reply in ended if reply.names and not reply.named_ids]
    if texts:
        lasts = [(reply.names or ("",))[-1] for reply in texts]
        cuts = [reply.text.endswith(last) for reply, last in zip(texts, lasts, strict=True)]
        return cut if all(cuts) else EndpointFinding(name, "ok", "kept")
    if len(_beginnings(ended)) < 2:
        return EndpointFinding(name, "?", f"of {len(replies.all)} replies {len(ended)} ended by it")
    if len({reply.tokens[-1] for reply in ended}) == 1:
        return EndpointFinding(name, "ok", f"kept: {len(ended)} replies end with the same token")
    return EndpointFinding(name, "?", "replies end with different tokens: several, or cut off")
