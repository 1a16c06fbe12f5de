"""Copies of a store's runs and models in tools of others; the store stays what counts.

Needs no Airflow. Nothing of it is imported unless it is configured, and ``mlflow`` and
``huggingface_hub`` in this room only.
"""
