"""Metrics of a store for Prometheus, and the rules and dashboards that use them.

Needs no Airflow, and works when Airflow is down. Only this package imports ``prometheus_client``.
"""
