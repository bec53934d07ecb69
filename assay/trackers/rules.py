"""Rules of unhealthy training. Each compares the newest steps with the run's own past, or with a
bound, and says what is wrong and which setting helps.
"""

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import sqrt
from statistics import fmean, median

from assay.config.warning_names import WarningName
from assay.types import Metrics

WINDOW = 8
"""The mean of so many steps is compared with a bound, so that one bad step is no alarm."""
RECENT, PAST = 3, 16
"""So many newest steps are compared with so many before them, or as many as there are."""
FLAT, CUT_OFF, NO_PROGRAM = 0.75, 0.25, 0.5
"""Largest healthy shares: samples without a gradient, completions that are cut off, and completions
without a program that compiles."""
TOO_HARD, TOO_EASY = 0.1, 0.95
"""Groups without differences are of tasks too hard below this pass rate in every step, and too easy
above that mean."""
FALL, CERTAIN = 1 / 3, 3.5
"""The pass rate has collapsed below this share of its past, if the fall is so many standard errors
large."""
LOWEST_ENTROPY, LOWEST_LENGTH = 0.1, 0.25
"""Below these shares of their past, entropy and length have collapsed."""
LARGEST_KL, LARGEST_SPREAD = 0.01, 0.2
"""Up to here engine and learner agree on tokens (Tinker's bound), and importance weights are
sound."""
LARGEST_RATIO, NO_GRADIENT = 10.0, 1e-9
CUT, RATE, KL = "rollout/truncated", "reward/pass_rate", "learn/kl_engine"
ENTROPY, LENGTH, REWARD = "rollout/entropy", "rollout/length", "reward/mean"


class RunHistory:
    """The metrics of the steps of a run: its first ones, and its newest."""

    def __init__(self) -> None:
        self._first: list[Metrics] = []
        self._newest: deque[Metrics] = deque(maxlen=PAST + WINDOW)
        self._count = 0

    def add(self, metrics: Metrics) -> None:
        """Add the metrics of one more step."""
        self._count += 1
        if len(self._first) < WINDOW:
            self._first.append(metrics)
        self._newest.append(metrics)

    def recent(self, name: str, steps: int) -> list[float]:
        """The values of the last `steps` steps that have the metric; none if there are fewer."""
        values = _values(self._newest, name)
        return values[-steps:] if len(values) >= steps else []

    def mean(self, name: str, steps: int = WINDOW) -> float:
        """The mean over the last `steps` steps; 0 before there are so many."""
        values = self.recent(name, steps)
        return fmean(values) if values else 0.0

    def share(self, name: str) -> float:
        """The mean over the last WINDOW steps of a share that is absent where it is 0."""
        return fmean(metrics.get(name, 0.0) for metrics in [*self._newest][-WINDOW:])

    def past(self, name: str, recent: int = RECENT) -> list[float]:
        """The values of up to PAST steps before the `recent` newest."""
        return _values(self._newest, name)[:-recent][-PAST:]

    def start(self, name: str, steps: int = WINDOW) -> float:
        """The mean over the first `steps` steps that are not among the RECENT newest; 0 if there
        are none.
        """
        values = _values(self._first[: max(0, min(steps, self._count - RECENT))], name)
        return fmean(values) if values else 0.0


def _values(steps: Iterable[Metrics], name: str) -> list[float]:
    return [metrics[name] for metrics in steps if name in metrics]


@dataclass(frozen=True, slots=True)
class Rule:
    """A warning that is given once."""

    name: WarningName
    check: Callable[[RunHistory], str]
    """What is wrong and what helps; empty while nothing is."""
    unless: tuple[WarningName, ...] = ()
    """Warnings that name the cause: after them, this one would only name a consequence."""


def wrong_sign(history: RunHistory) -> str:
    """Passing costs more reward than rewards differ by."""
    gains, spread = history.recent("reward/gain_of_passing", RECENT), history.mean("reward/std", 1)
    if not gains or max(gains) >= 0 or fmean(gains) > -spread:
        return ""
    return (
        f"programs that pass get {-fmean(gains):.2f} less reward than others of the same task that"
        " fail: a reward has the wrong sign; look for a negative weight in [rewards], or a term"
        " that returns a cost"
    )


@dataclass(frozen=True, slots=True)
class _Fall:
    """The pass rate before and after a fall, which so many newest steps show."""

    before: float
    after: float
    steps: int


def _fall(history: RunHistory) -> _Fall | None:
    """A fall of the pass rate that chance does not explain; None without one.

    A two-proportion z-test over groups: completions of one task pass or fail together at worst.
    """
    for steps in (RECENT, 5, WINDOW):
        past, recent = history.past(RATE, steps), history.recent(RATE, steps)
        groups = history.mean("rollout/groups", 1)
        if not past or not recent or fmean(recent) > FALL * fmean(past):
            continue
        before, after = fmean(past), fmean(recent)
        pooled = (before * len(past) + after * steps) / (len(past) + steps)
        error = sqrt(pooled * (1 - pooled) / max(groups, 1.0) * (1 / len(past) + 1 / steps))
        if before - after > CERTAIN * error:
            return _Fall(before, after, steps)
    return None


def _reward_rose(history: RunHistory, steps: int = RECENT) -> bool:
    past, recent = history.past(REWARD, steps), history.recent(REWARD, steps)
    return bool(past and recent) and fmean(recent) > fmean(past)


def _moved(history: RunHistory, steps: int) -> str:
    """How entropy, lengths and the like have left their own past in the newest `steps`, in words;
    empty if they stay.
    """
    changes = []
    for name, words in {ENTROPY: "entropy", LENGTH: "tokens", CUT: "share cut off"}.items():
        past, recent = history.past(name, steps), history.recent(name, steps)
        if past and recent:
            before, after = fmean(past), fmean(recent)
            low, high = sorted((before, after))
            if high > 2 * low and high - low > 0.05:
                changes.append(f"{words} {before:.3g} to {after:.3g}")
    every = [*history.past("learn/ratio_max"), *history.recent("learn/ratio_max", 1)]
    if every and max(every) > LARGEST_RATIO:
        changes.append(f"largest ratio {max(every):.3g}")
    return ", ".join(changes)


def collapse(history: RunHistory) -> str:
    """The pass rate fell far below its own past."""
    if not (fall := _fall(history)):
        return _fallen_reward(history)
    text = f"the pass rate fell from {fall.before:.1%} to {fall.after:.1%}"
    if _reward_rose(history, fall.steps):
        return (
            f"{text} while the reward rose: something else than passing pays more; lower the weight"
            " of the other terms in [rewards]"
        )
    return f"{text}; {_lower_rate(history, fall.steps)}"


def _fallen_reward(history: RunHistory) -> str:
    """The same of the reward, where no pass rate tells it: environments report their own."""
    past, recent = history.past(REWARD), history.recent(REWARD, RECENT)
    if not past or not recent or any(history.past(RATE)):
        return ""
    spread, groups = history.past("reward/std"), max(history.mean("rollout/groups", 1), 1.0)
    error = fmean(spread) * sqrt((1 / len(past) + 1 / RECENT) / groups) if spread else 0.0
    before, after = fmean(past), fmean(recent)
    if not spread or before - after <= max(CERTAIN * error, fmean(spread)):
        return ""
    return f"the reward fell from {before:.3g} to {after:.3g}; {_lower_rate(history, RECENT)}"


def _lower_rate(history: RunHistory, steps: int) -> str:
    rate = history.mean("learn/lr", 1)
    lower = f"lower optimizer.lr ({rate:.3g})" if rate else "lower optimizer.lr"
    if moved := _moved(history, steps):
        return f"the updates moved the policy too far ({moved}): {lower}"
    return f"{lower}, and look at the replies (assay view)"


def stale_engine(history: RunHistory) -> str:
    """The engine samples with other weights than the learner has, or computes them otherwise."""
    apart = history.mean(KL)
    if apart <= LARGEST_KL:
        return ""
    text = f"engine and learner give tokens different probabilities (learn/kl_engine {apart:.2g})"
    if history.mean("staleness/mean"):
        return f"{text}: the weights that sample are old; lower rollout.max_staleness"
    if history.start(KL) and history.recent(KL, RECENT)[0] > 3 * history.recent(KL, WINDOW)[0]:
        return (
            f"{text}, and more with every step: the engine does not get the new weights; restart"
            " its servers, and give this run servers of its own"
        )
    return (
        f"{text}: use the dtype of the policy in the engine (engine.dtype), and the same model,"
        " without quantization, on servers of your own"
    )


def importance_weights(history: RunHistory) -> str:
    """Weights of whole completions are far from 1 although engine and learner agree on tokens."""
    spread = history.mean("learn/importance_weight_spread")
    if spread <= LARGEST_SPREAD:
        return ""
    return (
        f"importance sampling weights are off 1 by {spread:.2f} on average, although engine and"
        f" learner agree on tokens (learn/kl_engine {history.mean(KL):.2g}): over a whole"
        " completion rounding adds up, and the gradient follows it; set"
        " algorithm.importance_sampling = 'token_truncate'"
    )


def frozen(history: RunHistory) -> str:
    """Rewards differ, and yet nothing has a gradient."""
    norms = history.recent("learn/grad_norm", RECENT)
    advantages = history.recent("learn/advantage_std", RECENT)
    skipped = history.recent("learn/skipped", RECENT)
    if not norms or not advantages or not skipped:
        return ""
    if max(norms) > NO_GRADIENT or min(advantages) == 0 or max(skipped) == 1:
        return ""
    return (
        "the gradient is 0 although rewards differ: nothing that is trained reaches the loss; an"
        " adapter whose weights are all 0 stays so, so make a new one (policy.lora), and look at"
        " the loss of an algorithm of your own"
    )


def truncated(history: RunHistory) -> str:
    """Many completions are cut off; they were from the start, or have become longer."""
    share, before = history.mean(CUT), history.start(CUT, RECENT)
    if share <= CUT_OFF or median(history.recent(CUT, WINDOW)) <= CUT_OFF:
        return ""  # a collapse of the last few steps has another name
    if before < share / 2:
        return (
            f"{share:.0%} of the completions are cut off at rollout.max_tokens, and {before:.0%}"
            " were at the start: they have become longer or no longer end; reward shorter ones"
            " (rewards.length, algorithm.overlong_share), or lower optimizer.lr"
        )
    return (
        f"{share:.0%} of the completions are cut off at rollout.max_tokens; raise it, or, where"
        " they ramble on (assay view), give the model its chat template or SFT first"
    )


def no_program(history: RunHistory) -> str:
    """Hardly any completion passes, and most hold no program, or one that is whole and does not
    compile.
    """
    rates = history.recent(RATE, WINDOW)
    if not rates or max(rates) >= TOO_HARD:
        return ""
    empty, cut = history.share("verdict/no_code"), history.mean(CUT)
    share = empty + history.share("verdict/compile")
    if max(empty, share - cut) <= NO_PROGRAM:
        return ""  # a program that is cut off does not compile either
    longer = "; where their program is cut off, raise rollout.max_tokens" if cut > CUT_OFF else ""
    return (
        f"{share:.0%} of the completions hold no program that compiles: is the prompt in the form"
        " that the model knows? See `assay show-prompt`, policy.chat and prompt.template; a base"
        f" model needs SFT first{longer}"
    )


def _flat(history: RunHistory) -> bool:
    skipped = history.recent("learn/skipped", WINDOW)
    return bool(skipped) and min(fmean(skipped), median(skipped)) > FLAT


def too_hard(history: RunHistory) -> str:
    """Groups have no differences, because hardly anything passes."""
    rates = history.recent(RATE, WINDOW)
    if not _flat(history) or not rates or max(rates) >= TOO_HARD:
        return ""
    return (
        f"{fmean(rates):.1%} of the programs pass, so groups have no differences to learn from: the"
        " tasks are too hard; take easier ones (assay screen finds them), run SFT first, or raise"
        " rollout.group_size"
    )


def too_easy(history: RunHistory) -> str:
    """Groups have no differences, because nearly everything passes."""
    if not _flat(history) or history.mean(RATE) <= TOO_EASY:
        return ""
    return (
        f"{history.mean(RATE):.1%} of the programs pass, so groups have no differences to learn"
        " from: the tasks are too easy; take harder ones (assay screen finds them), or stop here"
    )


def flat_rewards(history: RunHistory) -> str:
    """All rewards are equal, although some programs pass and others fail."""
    spreads, rate = history.recent("reward/std", WINDOW), history.mean(RATE)
    if not _flat(history) or not spreads or max(spreads) > 1e-4 or not 0 < rate < 1:
        return ""
    return (
        f"every reward is {history.mean(REWARD, 1):.3g}, although {rate:.0%} of the programs pass:"
        " the reward does not tell them apart; give [rewards] a term that does, such as tests"
    )


def zero_variance(history: RunHistory) -> str:
    """The rewards of most groups are equal, and differ between groups."""
    if not _flat(history):
        return ""
    return (
        f"{history.mean('learn/skipped'):.0%} of the samples have no gradient: the rewards of their"
        " groups are equal (zero variance); take tasks that are solved at times (assay screen), a"
        " larger rollout.group_size, or algorithm.zero_variance_groups = 'resample'"
    )


def length_collapse(history: RunHistory) -> str:
    """Completions have shrunk."""
    before, after = history.start(LENGTH), history.mean(LENGTH, RECENT)
    if not before or not after or after >= LOWEST_LENGTH * before:
        return ""
    if _fall(history) and not _reward_rose(history):
        return ""  # the update did both
    text = f"completions shrank from {before:.0f} to {after:.0f} tokens"
    if _reward_rose(history):
        return f"{text} while the reward rose: short ones pay; lower the weight of rewards.length"
    return f"{text}; lower optimizer.lr, or the weight of rewards that pay short ones"


def entropy_collapse(history: RunHistory) -> str:
    """Completions have become nearly the same."""
    before, after = history.start(ENTROPY), history.recent(ENTROPY, RECENT)
    if not before or not after or fmean(after) >= LOWEST_ENTROPY * before:
        return ""
    return (
        f"entropy collapsed from {before:.3g} to {fmean(after):.3g}: completions are nearly the"
        " same; lower optimizer.lr, or raise algorithm.entropy_bonus, algorithm.kl or"
        " rollout.temperature"
    )


RULES = (
    Rule("wrong_sign", wrong_sign),
    Rule("frozen", frozen),
    Rule("length_collapse", length_collapse, unless=("wrong_sign",)),
    Rule("collapse", collapse, unless=("wrong_sign",)),
    Rule("stale_engine", stale_engine),
    Rule("importance_weights", importance_weights, unless=("stale_engine",)),
    Rule("no_program", no_program, unless=("collapse", "wrong_sign", "length_collapse")),
    Rule("truncated", truncated, unless=("collapse", "no_program")),
    Rule("entropy_collapse", entropy_collapse,
         unless=("collapse", "wrong_sign", "length_collapse")),
    Rule("too_hard", too_hard,
         unless=("collapse", "wrong_sign", "length_collapse", "no_program", "truncated", "frozen")),
    Rule("too_easy", too_easy),
    Rule("flat_rewards", flat_rewards, unless=("too_hard", "too_easy")),
    Rule("zero_variance", zero_variance,
         unless=("collapse", "wrong_sign", "length_collapse", "no_program", "truncated", "too_hard",
                 "too_easy", "flat_rewards")),
)  # fmt: skip
"""In the order of causes: a rule that names a cause comes before those of its consequences."""
