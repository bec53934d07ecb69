"""From tasks to judged completions, and from those to samples."""
