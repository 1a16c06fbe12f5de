"""Turns text into masked-LM records, without Beam or TensorFlow: text, tokens, rows, duplicates."""
