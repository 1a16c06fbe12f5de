"""Runs the first task of a re-pretraining run: refuses bad requests and records good ones."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from corpus.partitions import choose_partition, input_patterns
from hooks.notes import backfill_of
from operators.validate_base import STARTED_BY_A_DAG, ValidateOperator
from pipeline_config import ConfigError, PipelineConfig, load_preset, with_overrides
from pipeline_store import request_paths
from pipeline_store.formats import BackfillRuns
from pipeline_store.layout import RunLayout, StoreLayout
from preflight.estimates import estimates
from preflight.run import checks

if TYPE_CHECKING:
    from airflow.sdk import Context


class ValidateRunOperator(ValidateOperator):
    """Refuses a bad request for a re-pretraining run, and records a good one.

    The log begins with an estimate of time and cost. A scheduled run whose partition has no file is
    not an error: that day brought no text, and the run is skipped.

    Returns ``run_uri``, ``config_uri``, ``partition`` and ``lineage_id``.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(multiple_outputs=True, **kwargs)

    def _lineage_of(self, conf: Mapping[str, Any]) -> str:
        """Return the requested lineage, else the preset's; empty: the preset cannot be loaded."""
        try:
            return super()._lineage_of(conf) or load_preset(self.preset).model.lineage_id
        except ConfigError:
            return ""

    def _validate(self, context: Context, store: StoreLayout, run: RunLayout) -> dict[str, str]:
        dag_run = context["dag_run"]
        is_own = _is_arrival(dag_run)
        conf = _conf(dag_run)
        # Before any refusal: the backfill's summary also lists refused runs.
        backfill = _record_backfill(context, store, self._lineage_of(conf))
        asked = self._asked(load_preset(self.preset), conf, store, is_own=is_own)
        config = asked.config
        try:
            partition = self._partition(config, dag_run, store)
        except ConfigError as error:
            raise ConfigError(asked.all_problems(error.violations)) from None
        config = with_overrides(config, {"corpus.partition": partition})
        lineage_id = config.model.lineage_id
        about = {"partition": partition, "lineage_id": lineage_id, "backfill": backfill}
        if (
            not asked.violations
            and dag_run.run_type == "scheduled"
            and not self._has_files(config, store, partition)
        ):
            self._record(run, config, dag_run, about)
            raise self._skip(
                run,
                f"Nothing to do: no file of partition {partition} matches "
                f"{config.corpus.input_pattern!r} below {store.root}.",
            )
        if asked.violations:
            raise self._refusal(asked.all_problems(self._problems(config, store, partition)))
        estimate = estimates.estimate(config, store)
        for line in estimate.lines:
            self.log.info("%s", line)
        if problems := self._problems(config, store, partition):
            raise self._refusal(problems)
        self._warn_of_a_dead_reaper(store)
        self._record(run, config, dag_run, about)
        estimates.write_estimate(run, estimate)
        if config.run.dry_run:
            raise self._skip(run, "Dry run: all checks passed, and nothing was spent or changed.")
        self.log.info(
            "Run %s: partition %s, lineage %s", run.root, partition, config.model.lineage_id
        )
        return {
            "run_uri": run.root,
            "config_uri": run.config,
            "partition": partition,
            "lineage_id": lineage_id,
        }

    def _problems(self, config: PipelineConfig, store: StoreLayout, partition: str) -> list[str]:
        return checks.check(config, store, partition) + self._cloud_problems(config, store)

    def _partition(self, config: PipelineConfig, dag_run: Any, store: StoreLayout) -> str:
        """Return the partition from the form, else from the schedule, else from the corpus."""
        wanted, scheduled = config.corpus.partition, dag_run.partition_key
        if wanted and scheduled and wanted != scheduled:
            line = f"corpus.partition: {wanted!r} differs from this run's partition key "
            raise ConfigError([f"{line}{scheduled!r}; leave one of them empty."])
        return choose_partition(config, scheduled, store)

    @staticmethod
    def _has_files(config: PipelineConfig, store: StoreLayout, partition: str) -> bool:
        patterns = input_patterns(config.corpus.input_pattern, partition, store)
        return any(request_paths.glob(pattern) for pattern in patterns)


def _record_backfill(context: Context, store: StoreLayout, lineage_id: str) -> str | None:
    """Record the runs of the run's backfill and return its name; None: there is no backfill."""
    listed = backfill_of(context)
    if listed is None:
        return None
    BackfillRuns(
        name=listed.name,
        dag_id=context["dag_run"].dag_id,
        backfill_id=listed.backfill_id,
        lineage_id=lineage_id,
        runs=listed.runs,
        is_backwards=listed.is_backwards,
        created=datetime.now(UTC),
    ).create(store.backfill(listed.name))
    return listed.name


def _conf(dag_run: Any) -> dict[str, Any]:
    """Return a run's conf; the partition key of an unscheduled run is the default partition."""
    conf = dict(dag_run.conf or {})
    if dag_run.partition_key and dag_run.run_type != "scheduled":
        conf.setdefault("corpus.partition", dag_run.partition_key)
    return conf


def _is_arrival(dag_run: Any) -> bool:
    """Return whether the DAG ``corpus_arrivals`` started a run, which sets only its partition."""
    conf = dag_run.conf or {}
    return dag_run.run_type == STARTED_BY_A_DAG and conf.keys() == {"corpus.partition"}
