"""The first day with a real TPU: what is only believed, and the steps that settle it."""
