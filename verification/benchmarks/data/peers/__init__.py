"""The peers of the data job; each runs as a separate process and prints a JSON object."""
