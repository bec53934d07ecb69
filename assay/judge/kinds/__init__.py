"""The kinds of tests: one file for each."""
