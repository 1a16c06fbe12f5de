"""The Beam pipeline over the shards of a partition: planned, run on an engine, committed."""
