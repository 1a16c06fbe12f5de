"""Optimizers, schedules, and the moments that a run carries over from an earlier one."""
