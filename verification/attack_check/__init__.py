"""Attacks on stored data and decisions, by accident and by malice, with controls."""
