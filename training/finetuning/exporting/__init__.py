"""Fine-tuned models in the formats of others, and used on texts."""
