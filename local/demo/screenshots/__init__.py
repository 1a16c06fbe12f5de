"""Makes the pictures of Airflow's pages in ``docs/images``, from small runs on a separate stack."""
