"""Shows on a real Airflow that runs continue soon after the scheduler alone is killed."""
