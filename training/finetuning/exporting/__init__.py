"""Exports fine-tuned models to other projects' formats, and runs them on texts."""
