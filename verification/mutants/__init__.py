"""Mutants: small mistakes put into the code one at a time, and which tests notice them."""
