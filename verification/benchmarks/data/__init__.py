"""How fast and how large the data job is, against its peers, on text that this machine has."""
