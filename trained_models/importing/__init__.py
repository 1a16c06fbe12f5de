"""Imports models of others: finds them, identifies them, and chooses the weights to load."""
