"""Rigs that verify the product, and measure it; nothing that users run."""
