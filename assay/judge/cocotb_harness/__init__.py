"""What runs in the sandbox for a harness of cocotb: its own texts, which a run's folder gets."""
