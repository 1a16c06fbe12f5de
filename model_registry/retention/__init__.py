"""Which parts of a store can go, and their removal."""
