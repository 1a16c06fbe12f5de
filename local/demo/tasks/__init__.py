"""Labelled tasks made from text that every installation has, and what simple methods reach."""
