"""The policy itself as engine, in process."""

from assay.engines.torch.engine import TorchEngine

__all__ = ["TorchEngine"]
