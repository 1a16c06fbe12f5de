"""Measures which settings an update should have: continues a published encoder in many ways."""
