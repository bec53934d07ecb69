"""One algorithm per file: its loss, its advantages, its default settings."""

from assay.algorithms.base import Algorithm, algorithm, algorithms

__all__ = ["Algorithm", "algorithm", "algorithms"]
