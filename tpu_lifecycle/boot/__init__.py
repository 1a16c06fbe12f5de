"""How code gets onto a TPU VM, and starts there."""
