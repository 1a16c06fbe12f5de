"""Trained models as files, and their comparison, without TensorFlow."""
