"""The check that a hung job is found, explained and started again, and that no slow one is."""
