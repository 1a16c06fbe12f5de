"""The training loop over an objective, and the objective of pretraining."""
