"""Which settings an update should have: a published encoder is continued in many ways, measured."""
