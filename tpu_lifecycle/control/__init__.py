"""Asks for TPUs, watches them, and gives them back."""
