"""What an architecture is where TensorFlow is not needed: a folder each, named as the setting."""
