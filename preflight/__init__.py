"""What can be checked before anything is spent."""
