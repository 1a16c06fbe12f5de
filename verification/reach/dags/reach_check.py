"""Two tasks in the place of a data job that try all doors: as data jobs run, and without Landlock.

No DAG of an installation: whoever wants to see their own adds this folder to Airflow's bundles.
"""

from __future__ import annotations

from collections.abc import Sequence

import pendulum
from airflow.sdk import DAG

from operators.python_module import PythonModuleOperator
from verification.reach.site import Site


class UnhiddenOperator(PythonModuleOperator):
    """As where the kernel has no Landlock."""

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
