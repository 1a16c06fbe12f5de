"""The DAGs of the matrix; the only part of it that knows Airflow."""
