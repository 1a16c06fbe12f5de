"""A person puts another version into use from Airflow."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.definitions.asset import AssetUniqueKey
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException
from airflow.sdk.execution_time.context import OutletEventAccessor

from model_registry import lease, registry
from operators.pipeline_assets import PROMOTED_MODEL
from operators.rollback import RollbackOperator
from pipeline_store.formats import ProductionPointer, RunRecord
from tests.model_registry.runs import FinishedRun


class Rolling:
    """Two versions of a lineage, the second in use, and the task that changes that."""

    def __init__(self, folder: Path) -> None:
        self.first = FinishedRun(str(folder), "1")
        self.publish(self.first, None)
        self.second = FinishedRun(str(folder), "2", parent=self.first.version_id)
        self.publish(self.second, self.first.version_id)
        self.requests = 0

    @staticmethod
    def publish(run: FinishedRun, baseline: str | None) -> None:
        registry.publish(run.store, run.run)
        registry.promote(
            run.lineage, run.version_id, expected_baseline=baseline, reason="it is better"
        )

    def roll(
        self,
        version: str = "previous",
        *,
        lineage: str = "default",
        reason: str = "bad answers",
        run_id: str | None = None,
        asked: datetime | None = None,
    ) -> dict[str, str]:
        """Execute the task, in a DAG run of its own unless one is named, triggered now."""
        operator = RollbackOperator(
            task_id="rollback",
            store_uri=self.first.store.root,
            lineage=lineage,
            version=version,
            reason=reason,
        )
        self.requests += 1
        dag_run = SimpleNamespace(
            dag_id="model_rollback",
            run_id=run_id or f"manual__{self.requests}",
            run_after=asked or datetime.now(UTC),
        )
        self.event = OutletEventAccessor(key=AssetUniqueKey.from_asset(PROMOTED_MODEL))
        context: Any = {"outlet_events": {PROMOTED_MODEL: self.event}, "dag_run": dag_run}
        return operator.execute(context)

    @property
    def pointer(self) -> ProductionPointer:
        return ProductionPointer.load(self.first.lineage.production)


@pytest.fixture
def rolling(tmp_path: Path) -> Rolling:
    return Rolling(tmp_path)


def test_previous_is_the_parent_of_the_one_in_use(rolling: Rolling) -> None:
    first, second = rolling.first.version_id, rolling.second.version_id
    assert rolling.roll() == {"lineage_id": "default", "before": second, "after": first}
    assert rolling.pointer.version_id == first
    assert rolling.pointer.rolled_back == [second]
    assert rolling.pointer.reason == "bad answers"
    assert rolling.event.extra["version_id"] == first
    assert rolling.event.extra["reason"] == f"rolled back from {second}: bad answers"
    # By which promoted_models knows it.
    assert rolling.event.partition_keys == {f"default.{first}"}


def test_a_task_that_is_tried_again_goes_one_step_back_and_tells_of_it(rolling: Rolling) -> None:
    third = FinishedRun(rolling.first.store.root, "3", parent=rolling.second.version_id)
    rolling.publish(third, rolling.second.version_id)
    # Of the first try only what it has changed is left.
    done = rolling.roll(run_id="manual__again")
    pointer = rolling.pointer
    assert rolling.roll(run_id="manual__again") == done
    assert rolling.pointer == pointer
    assert rolling.pointer.version_id == rolling.second.version_id
    assert rolling.event.extra["reason"] == f"rolled back from {third.version_id}: bad answers"
    assert rolling.event.partition_keys == {f"default.{rolling.second.version_id}"}
    # Another request is another step.
    assert rolling.roll()["after"] == rolling.first.version_id


def test_presses_that_waited_together_go_one_step_back(rolling: Rolling) -> None:
    third = FinishedRun(rolling.first.store.root, "3", parent=rolling.second.version_id)
    rolling.publish(third, rolling.second.version_id)
    asked = datetime.now(UTC)
    assert rolling.roll(asked=asked)["after"] == rolling.second.version_id
    pointer = rolling.pointer
    for _ in range(3):
        with pytest.raises(AirflowSkipException, match="is in use already"):
            rolling.roll(asked=asked)
    assert rolling.pointer == pointer
    # Whoever has seen the result, and presses again, wants another step.
    assert rolling.roll()["after"] == rolling.first.version_id


def test_previous_does_nothing_when_another_model_came_into_use_since(rolling: Rolling) -> None:
    asked = datetime.now(UTC)
    third = FinishedRun(rolling.first.store.root, "3", parent=rolling.second.version_id)
    rolling.publish(third, rolling.second.version_id)
    with pytest.raises(AirflowFailException, match=f"{third.version_id} came into use at"):
        rolling.roll(asked=asked)
    assert rolling.pointer.version_id == third.version_id
    # A version that is named is meant, whatever is in use.
    assert rolling.roll(rolling.first.version_id, asked=asked)["before"] == third.version_id


def test_a_pointer_of_an_earlier_release_does_not_say_what_was_in_use(rolling: Rolling) -> None:
    pointer = rolling.pointer
    pointer.model_copy(update={"earlier": []}).write(rolling.first.lineage.production)
    with pytest.raises(AirflowFailException, match="does not say what was in use then"):
        rolling.roll(asked=pointer.changed - timedelta(seconds=1))


def test_a_version_can_be_named_and_taken_back(rolling: Rolling) -> None:
    rolling.roll(rolling.first.version_id)
    rolling.roll(rolling.second.version_id, reason="it was right after all")
    assert rolling.pointer.version_id == rolling.second.version_id
    assert rolling.pointer.rolled_back == [rolling.first.version_id]


def test_what_is_in_use_already_is_no_event(rolling: Rolling) -> None:
    with pytest.raises(AirflowSkipException, match="is in use already"):
        rolling.roll(rolling.second.version_id)
    assert rolling.pointer.sequence == 2
    assert rolling.event.extra == {}


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        ({"version": "v-000000000000"}, "does not exist"),
        ({"version": "../../elsewhere"}, "would leave"),
        ({"lineage": "Not A Lineage"}, "is not a valid id"),
        ({"lineage": "empty"}, "No model is in use"),
        ({"reason": "  "}, "A reason is needed"),
    ],
)
def test_what_cannot_be_done_fails_without_another_try(
    rolling: Rolling, request_: dict[str, str], message: str
) -> None:
    with pytest.raises(AirflowFailException, match=message):
        rolling.roll(**request_)
    assert rolling.pointer.version_id == rolling.second.version_id


def test_the_first_version_has_none_before(rolling: Rolling) -> None:
    rolling.roll()
    with pytest.raises(AirflowFailException, match="is the first version"):
        rolling.roll()


def test_a_damaged_version_does_not_come_into_use(rolling: Rolling) -> None:
    folder = Path(rolling.first.lineage.version(rolling.first.version_id))
    (folder / "vocab.txt").write_bytes(b"other words")
    with pytest.raises(AirflowFailException, match=r"vocab\.txt"):
        rolling.roll()
    assert rolling.pointer.version_id == rolling.second.version_id


def test_a_run_that_is_under_way_is_named(
    rolling: Rolling, capsys: pytest.CaptureFixture[str]
) -> None:
    lease.acquire(
        rolling.second.lineage,
        RunRecord.load(rolling.second.run.record),
        expires=datetime.now(UTC) + timedelta(hours=1),
        poll_seconds=1,
        has_ended=lambda _: False,
    )
    rolling.roll()
    assert "cannot promote any more" in capsys.readouterr().out
