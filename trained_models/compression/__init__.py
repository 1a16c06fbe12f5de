"""Smaller models of classifiers: the gate, the table and its page, the card."""
