"""The loop, what it draws from, and what learns."""
