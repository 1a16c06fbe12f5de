"""What fine-tuned models of several seeds say about the models they were made from.

No TensorFlow: the same code compares on a TPU VM and on an Airflow worker.
"""
