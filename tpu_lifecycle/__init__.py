"""The TPU life cycle without Airflow: backend, reservation, sweep, reaper, code bundle."""
