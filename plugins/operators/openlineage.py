"""What tasks tell OpenLineage of the data that they have read and written.

The provider ``apache-airflow-providers-openlineage`` asks, where it is installed and told whom to
send events to. Elsewhere nothing here is called, and nothing of OpenLineage is ever imported.
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
    """Mixin of the operators that say which data they have read and written.

    They say it when a try has ended: only then does the store know. A deferred task begins anew
    after each wait, and would say it each time. A try that has failed has only read: what it left
    counts for nothing, or was there before.
    """

    store_uri: str

    @abstractmethod
    def task_data(self, run: RunLayout, number: int) -> TaskData:
        """Return what the task has read and written, by the store.

        :param run: whose task this is.
        :param number: in a mapped group, of the task's TPU; from 0.
        """

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> OperatorLineage:
        """Return the data of a task that has succeeded or was skipped."""
        return _lineage(self._data_of(task_instance))

    def get_openlineage_facets_on_failure(self, task_instance: Any) -> OperatorLineage:
        """Return the data that a task which has failed was to read."""
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
    """Return what is so of data whoever works with them."""
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
    """Return what is so of data as they were read: how many, and what was checked."""
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
