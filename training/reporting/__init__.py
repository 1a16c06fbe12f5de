"""Progress, event files, metric files and score tables."""
