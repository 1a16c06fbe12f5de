"""Attacks by people who press a button twice, on the task as Airflow runs it."""

from __future__ import annotations

import shutil
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from model_registry import registry
from operators.rollback import RollbackOperator
from pipeline_store.formats import ProductionPointer
from tests.model_registry.retained import line_of_models
from verification.attack_check.rows import Row, Tally


def presses(folder: Path, times: int) -> Tally:
    """Ask for the previous version again and again, having seen the same model in use."""
    tally = Tally()
    for number in range(times):
        path = str(folder / str(number))
        runs = line_of_models(path, 4)
        asked = datetime.now(UTC)
        for press in range(2 + 2 * (number % 2)):
            operator = RollbackOperator(
                task_id="rollback",
                store_uri=path,
                lineage="default",
                version="previous",
                reason="bad answers",
            )
            dag_run = SimpleNamespace(dag_id="rollback", run_id=f"run-{press}", run_after=asked)
            context: Any = {"dag_run": dag_run}
            announced = mock.patch("operators.rollback.announce_model")
            with announced, suppress(AirflowSkipException, AirflowFailException):
                operator.execute(context)
        found = registry.production(runs[0].lineage)
        is_one_back = found is not None and found.version_id == runs[2].version_id
        tally.add(*([] if is_one_back else [f"{found and found.version_id} is in use"]))
        shutil.rmtree(path)
    return tally


def _seen_now() -> Any:
    """Let *previous* be of the version that is in use when the task runs."""
    return mock.patch.object(ProductionPointer, "in_use_at", lambda self, _: self.version_id)


ROWS = (Row("two and four presses of previous", presses, 10, _seen_now, 2),)
