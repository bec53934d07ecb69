"""Settings: typed, frozen, strict; read from TOML, overridden from the command line, saved with the
run.
"""
