"""Labelled tasks: their examples read, checked, divided and written as records."""
