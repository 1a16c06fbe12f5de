"""The pictures of Airflow's pages in ``docs/images``, from small runs on a stack of their own."""
