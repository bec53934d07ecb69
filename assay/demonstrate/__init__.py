"""Scripted conversations in which references are found and written, as rows that SFT learns."""
