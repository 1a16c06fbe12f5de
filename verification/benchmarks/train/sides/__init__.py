"""The programs that are measured; each is a process that runs steps when it is asked to.

Those of PyTorch run in an environment without this project's own dependencies.
"""
