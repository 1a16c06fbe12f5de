"""The measured programs; each is a process that runs steps on request.

The PyTorch programs run in an environment without this project's own dependencies.
"""
