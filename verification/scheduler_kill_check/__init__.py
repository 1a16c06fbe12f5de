"""Shows on a real Airflow that runs go on soon after the scheduler alone is killed."""
