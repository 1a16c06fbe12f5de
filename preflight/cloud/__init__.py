"""Checks of Google Cloud that are made before anything is spent, one small function each."""
