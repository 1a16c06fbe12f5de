"""Shows that the bill of a run names each billed second once, against two others' accounts."""
