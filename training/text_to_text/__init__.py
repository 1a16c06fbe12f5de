"""T5 models in TensorFlow: built, fine-tuned, decoded from and exported."""
