"""Engines generate completions: one interface, one engine per folder."""
