"""Vocabularies of both kinds, and text to their ids."""
