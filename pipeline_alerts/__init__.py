"""Alerts: what a person has to know, found in the store, told once, and kept there.

Needs no Airflow. What sends alerts, and what Airflow calls, is in ``plugins/alerting``.
"""
