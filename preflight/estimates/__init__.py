"""Estimates of the time, money and disk space that a run will take."""
