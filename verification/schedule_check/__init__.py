"""Shows on a real Airflow that every partition is trained on once, however its run was started."""
