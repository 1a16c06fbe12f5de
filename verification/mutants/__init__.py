"""Mutation testing: small mistakes put into the code one at a time, and the tests that notice."""
