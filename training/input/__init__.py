"""Reads record files and turns them into batches."""
