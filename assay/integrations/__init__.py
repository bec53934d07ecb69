"""The judge for others: an HTTP service, and the reward functions of TRL, verl and verifiers."""
