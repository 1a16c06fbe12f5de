"""Tests whether a choice in the configuration helps: small trainings, compared on held-out text."""
