"""All scenarios, in the order in which they are listed."""

from __future__ import annotations

from leak_matrix.scenarios import (
    airflow_dead,
    capacity,
    creating,
    dag_changes,
    people,
    processes,
    runs,
    service,
    taken_away,
    teardown,
    vms,
)

SCENARIOS = (
    *creating.SCENARIOS,
    *capacity.SCENARIOS,
    *people.SCENARIOS,
    *runs.SCENARIOS,
    *dag_changes.SCENARIOS,
    *taken_away.SCENARIOS,
    *vms.SCENARIOS,
    *teardown.SCENARIOS,
    *processes.SCENARIOS,
    *service.SCENARIOS,
    *airflow_dead.SCENARIOS,
)
