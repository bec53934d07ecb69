"""One vetted bundle per file: which loss, which credit, which defaults."""

from assay.algorithms.base import Algorithm, algorithm, algorithms

__all__ = ["Algorithm", "algorithm", "algorithms"]
