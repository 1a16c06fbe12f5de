"""Exports models to other projects' formats, verified before they are committed.

A Hugging Face folder, and a SavedModel that takes text. tf-models needs no export: it reads the
checkpoints as they are.
"""
