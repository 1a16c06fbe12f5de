"""Builds, fine-tunes, decodes and exports T5 models in TensorFlow."""
