"""The scenarios, by what goes wrong."""
