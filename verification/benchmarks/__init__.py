"""Benchmarks that compare speed and quality with named peers."""
