"""Imports weights from elsewhere as the first model of a lineage, as a task."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from model_registry import importing, lease, plans
from model_registry.errors import RegistryError
from operators import task_data
from operators.failures import refused_by
from operators.openlineage import TellsOpenLineage
from operators.own_run import own_run, prepared_manifest
from operators.python_module import PythonModuleOperator
from operators.task_data import TaskData
from pipeline_config import parse_config
from pipeline_store import uris
from pipeline_store.formats import RunRecord
from pipeline_store.layout import RunLayout, StoreLayout

if TYPE_CHECKING:
    from airflow.sdk import Context


class ImportModelOperator(TellsOpenLineage, PythonModuleOperator):
    """Makes ``model.init_checkpoint`` the first version of a lineage that has no model in use.

    It is loaded, saved, scored on some held-out documents and put into use, so that the update that
    follows starts from it and is compared with it. TensorFlow runs in a separate process, on the
    worker's CPU: some minutes, before a TPU is rented. All later runs have nothing to do.

    Returns the version and its losses by set; an empty dictionary if nothing was imported.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(module="training.import_version", **kwargs)
        self._import: RunLayout | None = None

    def execute(self, context: Context) -> dict[str, Any]:
        """Import, if the lineage begins with a model and has none yet."""
        store = StoreLayout(self.store_uri)
        try:
            self._import = self._begin(context, store)
            if self._import is None:
                self.log.info("Nothing to import: the lineage has a model, or begins without one")
                return {}
            summary = super().execute(context)
            version, verdict = importing.finish_import(store, self._import)
        except RegistryError as error:
            # Another try cannot help.
            raise refused_by(error) from error
        self.log.info("In use: %s. %s", version.version_id, verdict.reason)
        if (doubt := importing.doubt(verdict)) is not None:
            self.log.warning("%s", doubt)
        return {"version": version.version_id, **summary}

    def command_line(self, context: Context) -> list[str]:
        """Return the module's arguments."""
        assert self._import is not None  # noqa: S101 - execute has begun it
        return importing.arguments(StoreLayout(self.store_uri), self._import)

    def _begin(self, context: Context, store: StoreLayout) -> RunLayout | None:
        run = own_run(context, self.store_uri)
        record = RunRecord.load(run.record)
        config = parse_config(uris.read(run.config), run.config)
        lineage = store.lineage(record.lineage_id)
        held = lease.require_held(lineage, record.run_key)
        own = {record.partition: prepared_manifest(run.prepared_partition, "prepare")}
        return importing.begin_import(
            store,
            config,
            run_id=record.run_key,
            partition=record.partition,
            evaluated=own | plans.general_set(store, lineage, config),
            lease_sequence=held.sequence,
        )

    def task_data(self, run: RunLayout, number: int) -> TaskData:
        """Return the data that the task has read and written, by the store's records."""
        return task_data.of_import(run)
