"""Compares our fine-tuning with Hugging Face's: equal metrics, and the speed of a step."""
