"""Reads input files as clean documents: formats, compressions, cleaning, and unreadable input."""
