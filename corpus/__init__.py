"""Text to masked-LM records, without Beam or TensorFlow: reading, tokens, rows, duplicates."""
