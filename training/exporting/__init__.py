"""Models in the formats of others, verified before they count.

A Hugging Face folder, and a SavedModel that takes text. tf-models needs no export: it reads the
checkpoints as they are.
"""
