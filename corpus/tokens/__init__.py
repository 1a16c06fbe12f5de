"""Vocabularies of all kinds, and the tokenizers that turn text into their ids."""
