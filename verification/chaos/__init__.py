"""Random, seeded faults against a whole TPU task group; counts TPUs left and work lost."""
