"""A local, read-only page over run folders: curves, evaluations, and every rollout."""
