"""Runs one untrusted program behind walls: limits, kernel calls, seccomp, landlock, zygote. Decides
nothing.
"""
