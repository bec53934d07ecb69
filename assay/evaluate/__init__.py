"""How good a policy is: run a benchmark, report it, draw it."""
