"""Makes tasks of repositories: bugs put into packages whose tests pass."""
