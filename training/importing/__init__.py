"""Weights from elsewhere: Hugging Face folders, Google's TensorFlow 1 BERT, tf-models checkpoints.

Each format has a reader that finds BERT's weights by name and knows how they are laid out. One plan
joins a reader with the model here and says of every weight what becomes of it.
"""
