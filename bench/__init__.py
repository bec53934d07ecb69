"""Measurements side by side; figures in README.md."""
