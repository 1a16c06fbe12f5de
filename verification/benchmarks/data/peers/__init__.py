"""What the data job is compared with; each is a process of its own and prints a JSON object."""
