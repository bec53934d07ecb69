"""Makes tasks of repositories: bugs of one place in packages whose tests pass."""
