"""Text to masked-LM records: reading, vocabularies, rows, duplicates; neither Beam nor TensorFlow."""
