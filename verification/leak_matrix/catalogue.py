"""All scenarios, in listing order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from verification.leak_matrix.scenario import Scenario, Subject
from verification.leak_matrix.scenarios import (
    airflow_dead,
    capacity,
    creating,
    dag_changes,
    parallel_tpus,
    people,
    processes,
    runs,
    service,
    taken_away,
    teardown,
    vms,
)

_OF_ONE_TPU = (
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


def _of_finetuning() -> Iterator[Scenario]:
    """Yield the same scenarios for a DAG with a mapped group of TPU tasks, plus those only it has.

    The control has no such DAG. A few of them suffice for the tests: the operators are the same.
    """
    for scenario in _OF_ONE_TPU:
        yield replace(
            scenario,
            id=f"finetuning-{scenario.id}",
            subject=Subject.FINETUNING,
            control=False,
            fast=scenario.id == "run-marked-failed",
        )
    yield from parallel_tpus.SCENARIOS


SCENARIOS = (*_OF_ONE_TPU, *_of_finetuning())
