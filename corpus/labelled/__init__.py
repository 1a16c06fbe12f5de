"""Labelled examples as they stand in files, their labels, and what can be wrong with them."""
