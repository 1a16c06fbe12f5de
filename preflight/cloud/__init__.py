"""What of Google Cloud can be checked before anything is spent, a small function for each check."""
