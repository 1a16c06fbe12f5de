"""The sides of the speed contest; each runs as a separate process."""
