"""Random, seeded faults against a whole TPU task group; then counts what was left or lost."""
