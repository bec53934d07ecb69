"""The policy behind an endpoint: outside agents call it, and the learner gets what was sampled."""
