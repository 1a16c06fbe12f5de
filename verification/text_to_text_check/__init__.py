"""Checks that our span pretraining pays on text-to-text tasks, and that PyTorch trains the same."""
