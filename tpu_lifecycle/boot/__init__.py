"""Delivers code to a TPU VM and starts it there."""
