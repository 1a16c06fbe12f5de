"""Checks that models of each architecture compute the same as the library transformers."""
