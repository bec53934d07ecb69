"""Runs one untrusted program in a sandbox: limits, seccomp, landlock, namespaces, and the zygote
that forks. Decides nothing.
"""
