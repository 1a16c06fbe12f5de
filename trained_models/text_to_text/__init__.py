"""T5 models as far as they need no TensorFlow: their sizes, weights, folders and metrics."""
