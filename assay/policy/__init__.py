"""The model that is trained: loading and saving, the tiny default, tokens, log-probabilities."""
