"""Attacks on what is stored and decided: accidents and malice, with controls."""
