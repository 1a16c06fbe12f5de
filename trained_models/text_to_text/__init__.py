"""T5 models where TensorFlow is not needed: their sizes, weights, folders and metrics."""
