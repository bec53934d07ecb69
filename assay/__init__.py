"""Makes code models better at passing real tests: SFT, then reinforcement learning on sandboxed
test runs.
"""
