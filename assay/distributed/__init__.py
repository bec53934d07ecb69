"""Learning on many processes: a leader that runs the loop, and followers that learn with it."""
