"""Shows which parts of its installation a data job can reach, as a list of doors."""
