"""Replaces the trainer on the matrix's TPU VMs."""
