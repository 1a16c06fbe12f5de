"""Prepares labeled tasks: reads, checks and splits their examples, and writes them as records."""
