"""The commands of the command line, one file each. Heavy imports wait until a command runs."""
