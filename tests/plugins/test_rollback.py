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

from model_registry import lease, production, registry
from operators import rollback
from operators.pipeline_assets import PROMOTED_MODEL
from operators.rollback import RollbackOperator
from pipeline_store.formats import ProductionPointer, RunRecord
from tests.model_registry.runs import FinishedRun


class Clocks:
    """The clock of Airflow's server, and that of a worker, which may be wrong.

    Each look at one takes a second.
    """

    def __init__(self) -> None:
        self.time = datetime(2026, 1, 1, tzinfo=UTC)
        self.skew = timedelta()

    def server(self) -> datetime:
        self.time += timedelta(seconds=1)
        return self.time

    def now(self, tz: Any) -> datetime:
        return self.server() + self.skew


class Rolling:
    """Two versions of a lineage, the second in use, and the task that changes that.

    :ivar ends: of DAG runs, as Airflow has them.
    """

    def __init__(self, folder: Path, clocks: Clocks) -> None:
        self.clocks = clocks
        self.ends: dict[str, datetime | None] = {}
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
            run_after=asked or self.clocks.server(),
            start_date=self.clocks.server(),
            triggering_user_name="ada",
        )
        self.event = OutletEventAccessor(key=AssetUniqueKey.from_asset(PROMOTED_MODEL))
        context: Any = {"outlet_events": {PROMOTED_MODEL: self.event}, "dag_run": dag_run}
        try:
            return operator.execute(context)
        finally:
            self.ends[dag_run.run_id] = self.clocks.server()

    @property
    def pointer(self) -> ProductionPointer:
        return ProductionPointer.load(self.first.lineage.production)


@pytest.fixture
def clocks(monkeypatch: pytest.MonkeyPatch) -> Clocks:
    clocks = Clocks()
    for module in (production, rollback):
        monkeypatch.setattr(module, "datetime", clocks)
    return clocks


@pytest.fixture
def rolling(tmp_path: Path, clocks: Clocks, monkeypatch: pytest.MonkeyPatch) -> Rolling:
    rolling = Rolling(tmp_path, clocks)
    monkeypatch.setattr(rollback, "end_of", lambda _, run_id: rolling.ends[run_id])
    return rolling


def test_previous_is_the_parent_of_the_one_in_use(rolling: Rolling) -> None:
    first, second = rolling.first.version_id, rolling.second.version_id
    assert rolling.roll() == {"lineage_id": "default", "before": second, "after": first}
    assert rolling.pointer.version_id == first
    assert rolling.pointer.rolled_back == [second]
    assert rolling.pointer.reason == "bad answers"
    assert rolling.pointer.changed_by == "ada"
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


@pytest.mark.parametrize("minutes", [0, -60, 60])
def test_presses_that_waited_together_go_one_step_back(rolling: Rolling, minutes: int) -> None:
    third = FinishedRun(rolling.first.store.root, "3", parent=rolling.second.version_id)
    rolling.publish(third, rolling.second.version_id)
    rolling.clocks.time += timedelta(hours=2)
    asked = rolling.clocks.server()
    # From here on the workers' clocks are wrong.
    rolling.clocks.skew = timedelta(minutes=minutes)
    assert rolling.roll(asked=asked)["after"] == rolling.second.version_id
    pointer = rolling.pointer
    for _ in range(3):
        with pytest.raises(AirflowSkipException, match="is in use already"):
            rolling.roll(asked=asked)
    assert rolling.pointer == pointer
    # Whoever has seen the result, and presses again, wants another step.
    assert rolling.roll()["after"] == rolling.first.version_id


def test_a_press_while_another_rollback_runs_has_not_seen_its_result(rolling: Rolling) -> None:
    rolling.roll(run_id="manual__first")
    # Airflow has not ended that run yet, or only after the press.
    for ended in (None, rolling.clocks.server() + timedelta(hours=1)):
        rolling.ends["manual__first"] = ended
        with pytest.raises(AirflowSkipException, match="is in use already"):
            rolling.roll()


def test_a_rollback_whose_run_airflow_has_forgotten_counts_by_the_clock(rolling: Rolling) -> None:
    third = FinishedRun(rolling.first.store.root, "3", parent=rolling.second.version_id)
    rolling.publish(third, rolling.second.version_id)
    asked = rolling.clocks.server()
    rolling.roll()
    rolling.ends.clear()
    with pytest.raises(AirflowSkipException, match="is in use already"):
        rolling.roll(asked=asked)
    rolling.ends.clear()
    assert rolling.roll()["after"] == rolling.first.version_id


@pytest.mark.parametrize("minutes", [0, -60, 60])
def test_previous_does_nothing_when_another_model_came_into_use_since(
    tmp_path: Path, clocks: Clocks, minutes: int
) -> None:
    clocks.skew = timedelta(minutes=minutes)
    rolling = Rolling(tmp_path, clocks)
    clocks.time += timedelta(hours=2)
    asked = clocks.server()
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
