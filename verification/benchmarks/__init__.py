"""Speed and quality against named peers."""
