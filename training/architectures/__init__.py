"""The TensorFlow part of each architecture, in a folder named like its setting."""
