"""RoBERTa, arXiv 1907.11692."""
