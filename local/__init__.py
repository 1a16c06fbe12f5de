"""Programs for a single machine such as a laptop: the local stack and the demo."""
