"""Shows on small models that the training defaults are better than the earlier defaults."""
