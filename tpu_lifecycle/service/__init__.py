"""The Cloud TPU API, behind one interface."""
