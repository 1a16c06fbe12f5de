"""Makes, writes, measures and judges smaller models of fine-tuned classifiers."""
