"""Finds the parts of a store that can be removed, and removes them."""
