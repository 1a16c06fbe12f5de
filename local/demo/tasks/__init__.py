"""Labeled tasks made from text that every installation has, and simple baselines for them."""
