"""The in-process engine: decodes with the policy's own weights in PyTorch."""

from assay.engines.torch.engine import TorchEngine

__all__ = ["TorchEngine"]
