"""Foreign weights: Hugging Face folders, Google's TensorFlow 1 BERT, tf-models checkpoints.

Each format has a reader that finds BERT's weights by name and knows their layout. A plan combines a
reader with our model and states the outcome for every weight.
"""
