"""Figures of the TPU compiler for the presets' programs, which ship with the project."""
