"""A package, so that a fixture's scope can be this folder."""
