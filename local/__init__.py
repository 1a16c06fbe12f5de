"""What runs on a laptop only: the local stack and the demo."""
