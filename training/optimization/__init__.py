"""Optimizers, schedules, and the moments that a run takes over from the one before."""
