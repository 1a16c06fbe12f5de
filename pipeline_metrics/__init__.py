"""Metrics of a store for Prometheus, and the rules and dashboards that are made of them.

Needs no Airflow: it goes on when that is down. ``prometheus_client`` is imported in this room only.
"""
