"""Pages on runs and models inside Airflow's UI, made from what is in the store."""
