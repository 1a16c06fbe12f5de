"""Shows on a real Airflow that every partition is learned from once, however its run came about."""
