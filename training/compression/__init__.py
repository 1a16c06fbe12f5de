"""Smaller models of fine-tuned classifiers: made, written, measured, judged."""
