"""Shows that a run's bill counts each billed second once, by comparison with two other accounts."""
