"""Trained models as files, and how they compare; no TensorFlow."""
