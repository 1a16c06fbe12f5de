"""Checks and estimates that are made before anything is spent."""
