"""Requests TPUs, watches them, and releases them."""
