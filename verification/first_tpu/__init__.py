"""The first day with a real TPU: unverified beliefs, and the steps that settle them."""
