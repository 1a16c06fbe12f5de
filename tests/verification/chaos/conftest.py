"""Airflow, before the operators of the tests import it; see ``tests/conftest.py``."""

import airflow.sdk  # noqa: F401
