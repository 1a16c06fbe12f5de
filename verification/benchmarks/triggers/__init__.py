"""Measures how many TPU triggers one process can run."""
