"""BERT, its layers and losses, and its checkpoints."""
