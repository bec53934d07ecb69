"""What writes completions: one interface, one engine per file."""
