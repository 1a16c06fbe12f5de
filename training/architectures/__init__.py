"""What an architecture is to TensorFlow: a folder each, named as the setting."""
