"""Proves tasks before anyone trains on them: references pass, and what must fail does."""
