"""Post-trains code models: SFT, then reinforcement learning on the verdicts of sandboxed tests."""
