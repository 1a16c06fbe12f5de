"""Compares the speed of the training step with its peers and the machine's own limit."""
