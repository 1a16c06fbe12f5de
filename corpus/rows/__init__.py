"""Turns tokens into rows, masks and records: one shard's documents into its record files."""
