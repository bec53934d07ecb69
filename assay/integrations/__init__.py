"""The judge for others: an HTTP service, and for TRL, verl, verifiers and NeMo Gym."""
