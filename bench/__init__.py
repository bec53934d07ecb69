"""Measurements side by side; README.md is their index."""
