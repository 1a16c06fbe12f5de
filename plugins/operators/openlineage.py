"""Reports the data that tasks have read and written to OpenLineage.

The provider ``apache-airflow-providers-openlineage`` calls this if it is installed and configured
with a receiver of events. Otherwise nothing here is called, and OpenLineage is never imported.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any

from operators.task_data import Data, TaskData
from pipeline_store import identity, uris
from pipeline_store.layout import RunLayout, StoreLayout

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage


class TellsOpenLineage:
    """Mixin of the operators that report which data they have read and written.

    They report when a try has ended: only then does the store know. A deferred task starts again
    after each wait, and would report each time. A failed try reports only inputs: its output does
    not count, or existed before.
    """

    store_uri: str

    @abstractmethod
    def task_data(self, run: RunLayout, number: int) -> TaskData:
        """Return the data that the task has read and written, by the store's records.

        :param run: the run that the task belongs to.
        :param number: number of the task's TPU in a mapped group, from 0.
        """

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> OperatorLineage:
        """Return the inputs and outputs of a task that has succeeded or was skipped."""
        return _lineage(self._data_of(task_instance))

    def get_openlineage_facets_on_failure(self, task_instance: Any) -> OperatorLineage:
        """Return the inputs of a task that has failed."""
        return _lineage(TaskData(self._data_of(task_instance).inputs))

    def _data_of(self, task_instance: Any) -> TaskData:
        key = identity.run_key(task_instance.dag_id, task_instance.run_id)
        number = max(task_instance.map_index or 0, 0)
        return self.task_data(StoreLayout(self.store_uri).run(key), number)


def _lineage(data: TaskData) -> OperatorLineage:
    from airflow.providers.openlineage.extractors import OperatorLineage
    from openlineage.client.event_v2 import InputDataset, OutputDataset

    return OperatorLineage(
        inputs=[
            InputDataset(*uris.dataset_name(one.uri), facets=_facets(one), inputFacets=_read(one))
            for one in data.inputs
        ],
        outputs=[
            OutputDataset(
                *uris.dataset_name(one.uri),
                facets=_facets(one) | _change(one),
                outputFacets=_written(one),
            )
            for one in data.outputs
        ],
    )


def _facets(data: Data) -> dict[str, Any]:
    """Return the facets of a dataset that do not depend on the task that uses it."""
    from openlineage.client import facet_v2 as facets

    found: dict[str, Any] = {
        "documentation": facets.documentation_dataset.DocumentationDatasetFacet(data.about)
    }
    if data.version:
        found["version"] = facets.dataset_version_dataset.DatasetVersionDatasetFacet(data.version)
    if data.columns:
        fields = [
            facets.schema_dataset.SchemaDatasetFacetFields(name=column.name, type=column.type)
            for column in data.columns
        ]
        found["schema"] = facets.schema_dataset.SchemaDatasetFacet(fields=fields)
    if data.rows is not None:
        quality = facets.data_quality_metrics_dataset
        columns = {} if data.tokens is None else {"input_ids": data.tokens}
        found["dataQualityMetrics"] = quality.DataQualityMetricsDatasetFacet(
            columnMetrics={
                name: quality.ColumnMetrics(count=float(count)) for name, count in columns.items()
            },
            rowCount=data.rows,
            bytes=data.bytes,
            fileCount=data.files,
        )
    return found


def _change(data: Data) -> dict[str, Any]:
    from openlineage.client.facet_v2 import lifecycle_state_change_dataset as lifecycle

    kinds = lifecycle.LifecycleStateChange
    kind = kinds.OVERWRITE if data.is_replaced else kinds.CREATE
    return {"lifecycleStateChange": lifecycle.LifecycleStateChangeDatasetFacet(kind)}


def _read(data: Data) -> dict[str, Any]:
    """Return the input facets of a dataset: its size, and what was checked."""
    from openlineage.client import facet_v2 as facets

    found: dict[str, Any] = {}
    if (data.rows, data.bytes, data.files) != (None, None, None):
        found["inputStatistics"] = (
            facets.input_statistics_input_dataset.InputStatisticsInputDatasetFacet(
                rowCount=data.rows, size=data.bytes, fileCount=data.files
            )
        )
    if data.checks:
        quality = facets.data_quality_assertions_dataset
        assertions = [
            quality.Assertion(
                assertion=check.name,
                success=check.holds,
                expected=check.expected or None,
                actual=check.actual or None,
            )
            for check in data.checks
        ]
        found["dataQualityAssertions"] = quality.DataQualityAssertionsDatasetFacet(assertions)
    return found


def _written(data: Data) -> dict[str, Any]:
    from openlineage.client.facet_v2 import output_statistics_output_dataset as statistics

    if (data.rows, data.bytes, data.files) == (None, None, None):
        return {}
    facet = statistics.OutputStatisticsOutputDatasetFacet(
        rowCount=data.rows, size=data.bytes, fileCount=data.files
    )
    return {"outputStatistics": facet}
