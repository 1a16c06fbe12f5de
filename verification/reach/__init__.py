"""Shows what a data job can still reach of the installation that it runs in: a list of doors."""
