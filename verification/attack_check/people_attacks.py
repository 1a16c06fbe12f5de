"""Attacks by people who press the rollback button repeatedly, on the task as Airflow runs it."""

from __future__ import annotations

import shutil
from contextlib import ExitStack, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from model_registry import production, registry
from operators import rollback
from pipeline_store.formats import ProductionPointer
from tests.model_registry.retained import line_of_models
from verification.attack_check.clock_attacks import Clock
from verification.attack_check.rows import Row, Tally

_MINUTES_AHEAD = (0, 0, -60, 60)
"""Errors of the workers' clock relative to that of Airflow's server."""


def presses(folder: Path, times: int) -> Tally:
    """Request the previous version several times while seeing the same model in use."""
    tally = Tally()
    for number in range(times):
        path = str(folder / str(number))
        runs = line_of_models(path, 4)
        _yesterday(runs[0].lineage.production)
        ahead = timedelta(minutes=_MINUTES_AHEAD[number % len(_MINUTES_AHEAD)])
        _press(path, 2 + 2 * (number % 2), ahead)
        found = registry.production(runs[0].lineage)
        is_one_back = found is not None and found.version_id == runs[2].version_id
        tally.add(*([] if is_one_back else [f"{found and found.version_id} is in use"]))
        shutil.rmtree(path)
    return tally


def _yesterday(uri: str) -> None:
    """Backdate all changes of a pointer by a day, so that the workers' clocks do not matter."""
    pointer, day = ProductionPointer.load(uri), timedelta(days=1)
    earlier = [stay.model_copy(update={"since": stay.since - day}) for stay in pointer.earlier]
    changes = {"changed": pointer.changed - day, "earlier": earlier}
    pointer.model_copy(update=changes).write(uri)


def _press(store: str, times: int, ahead: timedelta) -> None:
    """Run the tasks of requests that were queued together, one after the other."""
    asked, ends = datetime.now(UTC), dict[str, datetime]()
    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(Clock, "ahead", ahead))
        for module in (production, rollback):
            stack.enter_context(mock.patch.object(module, "datetime", Clock))
        stack.enter_context(mock.patch.object(rollback, "announce_model"))
        stack.enter_context(mock.patch.object(rollback, "end_of", lambda _, run_id: ends[run_id]))
        for press in range(times):
            operator = rollback.RollbackOperator(
                task_id="rollback",
                store_uri=store,
                lineage="default",
                version="previous",
                reason="bad answers",
            )
            dag_run = SimpleNamespace(
                dag_id="rollback",
                run_id=f"run-{press}",
                run_after=asked,
                start_date=datetime.now(UTC),
                triggering_user_name="ada",
            )
            context: Any = {"dag_run": dag_run}
            with suppress(AirflowSkipException, AirflowFailException):
                operator.execute(context)
            ends[dag_run.run_id] = datetime.now(UTC)


def _seen_now() -> Any:
    """Resolve *previous* relative to the version that is in use when the task runs."""
    return mock.patch.object(rollback, "_was_seen", return_value=True)


ROWS = (Row("two and four presses of previous", presses, 12, _seen_now, 2),)
