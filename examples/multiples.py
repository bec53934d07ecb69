"""A task set, generated: `tasks.train = "multiples:train"`."""

from __future__ import annotations

from collections.abc import Iterator

from assay.tasks import task_set
from assay.types import Check, Task


@task_set
def multiples(split: str = "train") -> Iterator[Task]:
    """Functions that multiply by a constant; `test` has the factors that `train` leaves out."""
    for factor in range(2, 40):
        if (factor % 5 == 0) == (split == "test"):
            yield Task(
                id=f"multiples/{factor}",
                prompt=f"# f(x): x times {factor}\n",
                checks=tuple(Check(f"assert f({x}) == {x * factor}") for x in (0, 3, -7)),
                entry_point="f",
                reference=f"def f(x):\n    return x * {factor}\n",
            )
