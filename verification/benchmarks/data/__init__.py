"""Compares the speed and memory of the data job with its peers, on text from this machine."""
