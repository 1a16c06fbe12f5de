"""Measures what smaller models of a published encoder's classifiers save and lose."""
