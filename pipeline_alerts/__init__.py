"""Alerts about events that need a person: found in the store, delivered once, and kept there.

Needs no Airflow. The channels and Airflow's callbacks are in ``plugins/alerting``.
"""
