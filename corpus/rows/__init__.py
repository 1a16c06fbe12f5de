"""Tokens to rows, masks and records: one shard's documents to its record files."""
