"""The steps of a re-pretraining run that need no TPU: validate, plan, judge, promote."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from model_registry import gate, registry
from pipeline_config import ConfigError, PipelineConfig, load_preset, parse_config, with_overrides
from pipeline_config.settings import load_settings
from pipeline_store import identity, uris
from pipeline_store.formats import EvaluationReport, FormatError, RunRecord, Verdict, VerdictKind
from pipeline_store.layout import RunLayout, StoreLayout
from preflight import checks
from preflight.partitions import choose_partition, input_patterns
from tpu_lifecycle.reaper_status import reaper_problem
from training import corpus
from training.errors import UserError

if TYPE_CHECKING:
    from airflow.sdk import Context

REAPER_MAX_AGE = timedelta(hours=1)
"""Of its newest pass: a reaper that is started every ten minutes has then missed several."""


class ValidateRunOperator(BaseOperator):
    """Refuses a bad request within seconds, before anything is spent; records a good one.

    Airflow's form checks single values. Unknown names, nested values, impossible combinations and
    missing inputs pass it, so they are refused here, one line each. Only a scheduled run whose
    partition has no file is no mistake: that day brought no text, and the run is skipped.

    Returns ``run_uri``, ``config_uri``, ``partition`` and ``lineage_id``.

    :param store_uri: root of the store.
    :param preset: the configuration that the form's values are laid over.
    """

    def __init__(self, *, store_uri: str, preset: str, **kwargs: Any) -> None:
        super().__init__(multiple_outputs=True, **kwargs)
        self.store_uri = store_uri
        self.preset = preset

    def execute(self, context: Context) -> dict[str, str]:
        """Check the request and write ``run.json`` and ``config.json``."""
        store = StoreLayout(self.store_uri)
        dag_run = context["dag_run"]
        try:
            config = with_overrides(load_preset(self.preset), dag_run.conf or {})
            partition = self._partition(config, dag_run, store)
        except ConfigError as error:
            raise self._refusal(error.violations) from error
        config = with_overrides(config, {"corpus.partition": partition})
        if dag_run.run_type == "scheduled" and not self._has_files(config, store, partition):
            raise AirflowSkipException(
                f"Nothing to do: no file of partition {partition} matches "
                f"{config.corpus.input_pattern!r} below {store.root}."
            )
        if problems := checks.check(config, store, partition):
            raise self._refusal(problems)

        run_key = identity.run_key(dag_run.dag_id, dag_run.run_id)
        run = store.run(run_key)
        lineage = store.lineage(config.model.lineage_id)
        in_use = registry.production(lineage)
        self._warn_of_a_dead_reaper(store)
        self._record(
            run,
            config,
            RunRecord(
                run_key=run_key,
                dag_id=dag_run.dag_id,
                run_id=dag_run.run_id,
                partition=partition,
                lineage_id=config.model.lineage_id,
                config_sha256=config.sha256,
                created=datetime.now(UTC),
                parent_version=in_use.version_id if in_use else None,
            ),
        )
        self.log.info(
            "Run %s: partition %s, lineage %s, starting from %s, %s steps of %s rows",
            run_key,
            partition,
            config.model.lineage_id,
            in_use.version_id if in_use else "random weights",
            config.training.train_steps,
            config.training.global_batch_size,
        )
        return {
            "run_uri": run.root,
            "config_uri": run.config,
            "partition": partition,
            "lineage_id": config.model.lineage_id,
        }

    def _warn_of_a_dead_reaper(self, store: StoreLayout) -> None:
        """Say when nothing would delete a TPU that this run's teardown could not give back."""
        try:
            problem = reaper_problem(store, load_settings().owner, None, REAPER_MAX_AGE)
        except (OSError, FormatError) as error:
            problem = f"The reaper's last pass cannot be read: {error!r}"
        if problem:
            self.log.warning("TPU REAPER: %s", problem)

    def _partition(self, config: PipelineConfig, dag_run: Any, store: StoreLayout) -> str:
        """Return the partition that the form, else the schedule, else the corpus itself names."""
        wanted, scheduled = config.corpus.partition, dag_run.partition_key
        if wanted and scheduled and wanted != scheduled:
            line = f"corpus.partition: {wanted!r} differs from this run's partition key "
            raise ConfigError([f"{line}{scheduled!r}; leave one of them empty."])
        return choose_partition(config, scheduled, store)

    @staticmethod
    def _has_files(config: PipelineConfig, store: StoreLayout, partition: str) -> bool:
        patterns = input_patterns(config.corpus.input_pattern, partition, store)
        return any(uris.glob(pattern) for pattern in patterns)

    def _record(self, run: RunLayout, config: PipelineConfig, record: RunRecord) -> None:
        uris.create_if_absent(run.config, config.to_bytes())
        kept = parse_config(uris.read(run.config), run.config)
        if kept.sha256 != config.sha256:
            line = f"{run.config}: this run was recorded with another configuration; the preset or "
            raise self._refusal([f"{line}the corpus has changed since. Trigger a new run."])
        record.create(run.record)

    def _refusal(self, problems: list[str]) -> AirflowFailException:
        for line in problems:
            self.log.error("%s", line)
        return AirflowFailException(
            f"Refused before anything was spent, {len(problems)} violation(s):\n"
            + "\n".join(problems)
        )


class PlanJobsOperator(BaseOperator):
    """Works out the command lines of the training and evaluation jobs.

    The candidate starts from the model that was in use when the run began, and is compared with the
    model in use now, on the run's own held-out documents and on those of every earlier partition.
    With ``training.replay_fraction`` it also trains on the partitions that the first one has seen,
    but for those whose rows do not fit the configuration any more; the log names these.

    Returns ``train`` and ``evaluate`` (lists of arguments) and ``baseline`` (a version id or None).

    :param store_uri: root of the store.
    :param run_uri: folder of the run. (templated)
    :param manifest_uri: PartitionManifest of the run's partition. (templated)
    """

    template_fields: Sequence[str] = ("run_uri", "manifest_uri")

    def __init__(self, *, store_uri: str, run_uri: Any, manifest_uri: Any, **kwargs: Any) -> None:
        super().__init__(multiple_outputs=True, **kwargs)
        self.store_uri = store_uri
        self.run_uri = run_uri
        self.manifest_uri = manifest_uri

    def execute(self, context: Context) -> dict[str, Any]:
        """Return the arguments of both jobs."""
        run, store = RunLayout(self.run_uri), StoreLayout(self.store_uri)
        record = RunRecord.load(run.record)
        lineage = store.lineage(record.lineage_id)
        baseline = registry.production(lineage)

        sets = {record.partition: self.manifest_uri}
        models = [f"candidate={run.training.root}"]
        if baseline is not None:
            sets = registry.manifests(lineage, baseline) | sets
            models.append(f"baseline={lineage.version(baseline.version_id)}")
        train = ["--run", run.root, "--store", store.root, "--manifest", self.manifest_uri]
        if record.parent_version is not None:
            train += ["--init-model", lineage.version(record.parent_version)]
            for manifest in self._replayed(run, store, record, record.parent_version):
                train += ["--replay-manifest", manifest]
        baseline_id = baseline.version_id if baseline else None
        evaluate = ["--store", store.root, "--config", run.config]
        evaluate += ["--current-set", record.partition, "--output", run.evaluation(baseline_id)]
        for name, manifest in sorted(sets.items()):
            evaluate += ["--set", f"{name}={manifest}"]
        for model in models:
            evaluate += ["--model", model]
        return {"train": train, "evaluate": evaluate, "baseline": baseline_id}

    def _replayed(
        self, run: RunLayout, store: StoreLayout, record: RunRecord, parent: str
    ) -> Iterator[str]:
        """Yield the manifests of the parent's partitions that this run can be trained on."""
        config = parse_config(uris.read(run.config), run.config)
        if not config.training.replay_fraction:
            return
        lineage = store.lineage(record.lineage_id)
        seen = registry.manifests(lineage, registry.load_version(lineage, parent))
        for partition, manifest in sorted(seen.items()):
            # Its own partition may have been prepared anew since.
            if partition == record.partition:
                continue
            try:
                corpus.training_manifest(manifest, store, config)
            except UserError as error:
                self.log.warning("Partition %s is not replayed: %s", partition, error)
            else:
                yield manifest


class JudgeOperator(BaseOperator):
    """Compares candidate and baseline and writes the verdict with its numbers.

    It reads the evaluation report that the job wrote, never the state of a task: a person can mark
    a task as successful.

    Returns the verdict's text.

    :param run_uri: folder of the run. (templated)
    :param baseline: version id of the model in use, or None. (templated)
    """

    template_fields: Sequence[str] = ("run_uri", "baseline")

    def __init__(self, *, run_uri: Any, baseline: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.run_uri = run_uri
        self.baseline = baseline

    def execute(self, context: Context) -> str:
        """Judge, store the verdict and return its text."""
        run = RunLayout(self.run_uri)
        config = parse_config(uris.read(run.config), run.config)
        report = EvaluationReport.load(run.evaluation(self.baseline))
        verdict = gate.judge(report, config.promotion, baseline_version=self.baseline)
        if not verdict.create(run.verdict(self.baseline)):
            verdict = Verdict.load(run.verdict(self.baseline))
        self.log.info("%s: %s", verdict.verdict.upper(), verdict.reason)
        return str(verdict.verdict)


class PromoteOperator(BaseOperator):
    """Publishes a promoted candidate as an immutable version and puts it into use.

    Skipped when the verdict is a rejection. Fails when another model came into use since the
    evaluation, because the comparison then was with the wrong model.

    Returns the version id.

    :param store_uri: root of the store.
    :param run_uri: folder of the run. (templated)
    :param manifest_uri: PartitionManifest of the run's partition. (templated)
    :param baseline: version id that the candidate was compared with, or None. (templated)
    """

    template_fields: Sequence[str] = ("run_uri", "manifest_uri", "baseline")

    def __init__(
        self, *, store_uri: str, run_uri: Any, manifest_uri: Any, baseline: Any, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.store_uri = store_uri
        self.run_uri = run_uri
        self.manifest_uri = manifest_uri
        self.baseline = baseline

    def execute(self, context: Context) -> str:
        """Publish and promote."""
        run, store = RunLayout(self.run_uri), StoreLayout(self.store_uri)
        verdict = Verdict.load(run.verdict(self.baseline))
        if verdict.verdict is not VerdictKind.PROMOTED:
            raise AirflowSkipException(f"The model in use stays: {verdict.reason}")
        version = registry.publish(
            store, run, manifest_uri=self.manifest_uri, baseline=self.baseline
        )
        registry.promote(
            store.lineage(version.lineage_id),
            version.version_id,
            expected_baseline=self.baseline,
            reason=verdict.reason,
        )
        self.log.info("In use: %s (%s)", version.version_id, verdict.reason)
        return version.version_id
