"""Which tasks of a benchmark are among the training tasks: by their programs and their prompts."""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from assay import extract
from assay.errors import SettingsError
from assay.evaluate.syntax import Syntax, syntax_of
from assay.types import Task

SHINGLE, WORDS = 5, 8
"""Tokens of a program, and words of a prompt, that count as one."""
SHORTEST = 30
"""Tokens of the shortest program that is compared: any two one-liners are alike."""
COMMON, FEW = 0.05, 5
"""Runs of words in a larger share of a benchmark's prompts, and in more than FEW, are no sign."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A training task and a task of the benchmark that are alike."""

    train: Task
    bench: Task
    program: float
    """Share of the two programs' pieces of syntax that both have, in [0, 1]; 0 without both."""
    prompt: float
    """Share of the benchmark's runs of WORDS words that the training prompt has, in [0, 1]."""
    identical: bool
    """Whether the programs differ in names, comments and annotations at most."""


@dataclass(frozen=True, slots=True)
class Overlap:
    """What `find_overlap` finds."""

    pairs: list[Pair]
    """The most alike first."""
    notes: list[str]
    """Why programs were not compared."""


class _Index:
    """Counts the elements that a set shares with each of many."""

    def __init__(self, sets: Sequence[Collection[Hashable]]) -> None:
        postings: defaultdict[Hashable, list[int]] = defaultdict(list)
        for place, elements in enumerate(sets):
            for element in elements:
                postings[element].append(place)
        self.sizes = np.array([len(elements) for elements in sets])
        self.postings = {element: np.array(places) for element, places in postings.items()}

    def shared(self, elements: Iterable[Hashable]) -> Any:
        """[N] how many of the elements each set has."""
        postings = [self.postings[element] for element in elements if element in self.postings]
        places = np.concatenate(postings) if postings else np.zeros(0, int)
        return np.bincount(places, minlength=len(self.sizes))


def find_overlap(
    train: Sequence[Task], bench: Sequence[Task], *, programs: float, prompts: float,
    advance: Callable[[], None] = lambda: None,
) -> Overlap:  # fmt: skip
    """Pairs of tasks whose programs are alike to the share `programs` or more, or whose prompts are
    to the share `prompts`. `advance` is called after each training task.
    """
    notes: dict[str, None] = {}
    read = [
        (place, program) for place, task in enumerate(bench) for program in _programs(task, notes)
    ]
    owners = np.array([place for place, _ in read], dtype=int)
    shapes = _Index([_pieces(syntax.tokens, SHINGLE) for _, syntax in read])
    texts = _Index(_without_common([_pieces(_words(task.prompt), WORDS) for task in bench]))
    pairs: list[Pair] = []
    for task in train:
        alike, same = np.zeros(len(bench)), set[int]()
        for syntax in _programs(task, notes, task.demonstrations):
            pieces = _pieces(syntax.tokens, SHINGLE)
            both = shapes.shared(pieces)
            np.maximum.at(alike, owners, both / (len(pieces) + shapes.sizes - both))
            likely = np.flatnonzero(both == len(pieces))
            same |= {read[n][0] for n in likely if read[n][1].exact == syntax.exact}
        shared = texts.shared(_pieces(_words(task.prompt), WORDS)) / np.maximum(texts.sizes, 1)
        for place in np.flatnonzero((alike >= programs) | (shared >= prompts)):
            scores = float(alike[place]), float(shared[place])
            pairs.append(Pair(task, bench[int(place)], *scores, identical=place in same))
        advance()
    pairs.sort(key=lambda pair: (-pair.identical, -pair.program, -pair.prompt))
    return Overlap(pairs, list(notes))


def also_trained_on(train: Sequence[Task], bench: Sequence[Task]) -> list[str]:
    """The ids of benchmark tasks that training has too: the same prompt, the same program but for
    its names, or the same name of a public task. Misses what `find_overlap` calls alike.
    """

    def marks(task: Task) -> set[Hashable]:
        exact = {syntax.exact for syntax in _programs(task, {})}
        name = {(task.id.lower(), task.entry_point)} if "/" in task.id else set()
        return {*exact, *name, tuple(_words(task.prompt))}

    trained = set(chain.from_iterable(map(marks, train)))
    return [task.id for task in bench if not trained.isdisjoint(marks(task))]


def _programs(
    task: Task, notes: dict[str, None], demonstrations: Sequence[str] = ()
) -> list[Syntax]:
    """The syntax of the reference and of demonstrations, as far as they are long enough; `notes`
    get why there is none of a language that has no parser.
    """
    replies = (extract.program(task, reply) for reply in demonstrations)
    sources = filter(None, dict.fromkeys([task.reference, *replies]))
    try:
        read = [syntax_of(source, task.language) for source in sources]
    except SettingsError as error:
        notes[str(error)] = None
        return []
    return [syntax for syntax in read if syntax is not None and len(syntax.tokens) >= SHORTEST]


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


def _pieces(items: Sequence[str], size: int) -> set[Hashable]:
    """All runs of `size` items; all items, if they are fewer."""
    last = max(1, len(items) - size + 1)
    return {hash(tuple(items[start : start + size])) for start in range(last)}


def _without_common(prompts: list[set[Hashable]]) -> list[set[Hashable]]:
    counts = Counter(chain.from_iterable(prompts))
    most = max(FEW, COMMON * len(prompts))
    return [{piece for piece in prompt if counts[piece] <= most} for prompt in prompts]
