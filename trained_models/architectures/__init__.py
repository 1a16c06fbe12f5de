"""Architectures as far as they need no TensorFlow: a folder each, named as in the setting."""
