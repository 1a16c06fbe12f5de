"""Input files to clean documents: formats, compressions, cleaning, and what cannot be read."""
