"""Whether models of each architecture compute what the library transformers does."""
