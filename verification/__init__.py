"""Checks and benchmarks of the product; users do not run them."""
