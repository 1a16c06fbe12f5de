"""Checks of one run before anything is spent."""
