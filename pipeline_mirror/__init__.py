"""Mirrors a store's runs and models to external tools; the store remains authoritative.

Needs no Airflow. It is imported only if it is configured, and only this package imports ``mlflow``
and ``huggingface_hub``.
"""
