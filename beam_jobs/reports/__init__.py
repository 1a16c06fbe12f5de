"""The page with a partition's data statistics."""
