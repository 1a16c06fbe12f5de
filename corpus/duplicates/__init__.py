"""Decides, from signatures, which of equal or similar documents is used."""
