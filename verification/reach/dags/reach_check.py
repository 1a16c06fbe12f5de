"""Two tasks that try all doors in place of a data job: as data jobs run, and without Landlock.

This is not an installation's DAG: to check your own, add this folder to Airflow's bundles.
"""

from __future__ import annotations

from collections.abc import Sequence

import pendulum
from airflow.sdk import DAG

from operators.python_module import PythonModuleOperator
from verification.reach.site import Site


class UnhiddenOperator(PythonModuleOperator):
    """The operator as on a kernel without Landlock."""

    def hidden_paths(self) -> Sequence[str]:
        """Return nothing."""
        return ()


with DAG("reach_check", schedule=None, start_date=pendulum.datetime(2026, 1, 1, tz="UTC")) as dag:
    site = Site.of()
    for task_id, operator in {"reach": PythonModuleOperator, "unhidden": UnhiddenOperator}.items():
        operator(
            task_id=task_id,
            module="verification.reach.probe",
            store_uri=site.store,
            arguments=["--site", site.to_json()],
        )
