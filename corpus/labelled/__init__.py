"""Reads labeled examples and their labels from files, and detects what is wrong with them."""
