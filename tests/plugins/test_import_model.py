"""The import as a task: when there is nothing to do, what it asks for, what it makes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException

from model_registry import importing, registry
from operators.import_model import ImportModelOperator
from operators.plan import PlanJobsOperator
from operators.python_module import PythonModuleOperator
from pipeline_config import parse_config, with_overrides
from pipeline_store import identity, uris
from pipeline_store.formats import PreparedInput, RunOutcome, RunPlan
from tests.model_registry.runs import FinishedRun, write_training
from tests.plugins.contexts import of_finished
from tests.plugins.lineages import hold
from training import import_version

SOURCE = "/models/bert"


class First(FinishedRun):
    """A lineage's first run, at the point where it holds the lineage and has no plan."""

    def __init__(self, folder: Path, **settings: object) -> None:
        super().__init__(str(folder), "1")
        uris.delete(self.run.plan)
        PreparedInput(manifest=self.manifest_uri).write(self.run.prepared_partition)
        wanted = {"model.init_checkpoint": SOURCE} | settings
        config = with_overrides(parse_config(uris.read(self.run.config), "config"), wanted)
        uris.write(self.run.config, config.to_bytes())
        hold(self)

    @property
    def imported(self) -> FinishedRun:
        """Return what the command is to leave: files of a training and an evaluation."""
        made = FinishedRun.__new__(FinishedRun)
        made.store, made.lineage, made.parent = self.store, self.lineage, None
        made.name, made.partition = self.key, self.partition
        made.key = identity.run_key(importing.IMPORT, self.key)
        made.run = self.store.run(made.key)
        return made


def execute(run: FinishedRun) -> dict[str, Any]:
    operator = ImportModelOperator(task_id="import", store_uri=run.store.root)
    return operator.execute(of_finished(run))


def test_nothing_is_loaded_where_there_is_nothing_to_import(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PythonModuleOperator, "execute", lambda *_: pytest.fail("it was run"))
    assert execute(First(tmp_path / "a", **{"model.init_checkpoint": None})) == {}
    run = First(tmp_path / "b")
    version = registry.publish(run.store, _planned(run))
    registry.promote(run.lineage, version.version_id, expected_baseline=None, reason="test")
    assert execute(run) == {}


def _planned(run: First) -> Any:
    run.plan()
    return run.run


def test_the_import_is_the_first_version_and_the_run_starts_from_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, asked = First(tmp_path), list[Any]()

    def load(task: PythonModuleOperator, context: Any) -> dict[str, Any]:
        asked.append(import_version.parser().parse_args(task.command_line(context)))
        made = run.imported
        write_training(made.run, made.key)
        made.evaluate(baseline=None, gain=0.5)
        uris.delete(made.run.verdict(None))
        return {"held_out_loss": {run.partition: 5.5}}

    monkeypatch.setattr(PythonModuleOperator, "execute", load)
    summary = execute(run)
    [arguments] = asked
    assert (arguments.run, arguments.store) == (run.imported.run.root, run.store.root)
    assert arguments.current_set == run.partition
    assert arguments.sets == [(run.partition, run.manifest_uri)]
    in_use = registry.production(run.lineage)
    assert in_use is not None
    assert summary["version"] == in_use.version_id == run.imported.version_id
    assert in_use.partitions_seen == []
    outcome = RunOutcome.load(run.imported.run.outcome)
    assert outcome.version_id == in_use.version_id
    assert outcome.reason.startswith(f"Imported from {SOURCE}. On 40 held-out documents of")
    # Once more, as after a task that died at its end: nothing is done twice.
    assert execute(run) == {}

    planned = PlanJobsOperator(task_id="plan", store_uri=run.store.root).execute(of_finished(run))
    assert planned["baseline"] == in_use.version_id
    parent = run.lineage.version(in_use.version_id)
    assert parent in planned["train"]
    assert f"baseline={parent}" in planned["evaluate"]
    plan = RunPlan.load(run.run.plan)
    assert (plan.parent_version, list(plan.trained)) == (in_use.version_id, [run.partition])


def test_a_run_that_does_not_hold_its_lineage_imports_nothing(tmp_path: Path) -> None:
    run = First(tmp_path)
    other = FinishedRun(str(tmp_path), "2")
    hold(other)
    with pytest.raises(AirflowFailException, match="may not continue the lineage"):
        execute(run)
