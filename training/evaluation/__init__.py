"""Held-out scores of models, and of the unigram baseline."""
