"""From record files to batches."""
