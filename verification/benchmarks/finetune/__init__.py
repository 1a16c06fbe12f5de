"""Fine-tuning against Hugging Face's: the same metrics, and how fast a step is."""
