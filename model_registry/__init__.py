"""Immutable model versions, the pointer to the one in production, and the gate before it."""
