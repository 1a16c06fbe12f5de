"""Pages on runs and models inside Airflow's UI, made from the files in the store."""
