"""How fast the training step is, against its peers and the machine's own limit."""
