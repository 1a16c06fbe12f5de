"""The training loop over an objective, and pretraining as the first of them."""
