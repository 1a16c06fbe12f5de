"""The scenarios, grouped by fault."""
