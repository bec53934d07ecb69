"""The model that is trained: loading, the tiny default, tokens and masks, log-probabilities,
saving.
"""
