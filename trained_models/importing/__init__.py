"""Models of others: where they lie, what they are, which weights are taken."""
