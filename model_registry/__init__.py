"""Model versions that never change, the pointer to the one in use, and the gate before it."""
