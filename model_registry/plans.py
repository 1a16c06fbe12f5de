"""Plans what a run trains on and starts from: once, by the run that holds the lineage."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from typing import TypeVar

from model_registry import attempts
from model_registry.best_scores import best_scores
from model_registry.earlier_passes import EarlierPasses
from model_registry.errors import RegistryError, StalePlanError
from model_registry.panel import scored_sets
from model_registry.production import production
from model_registry.versions import load_version, verified_manifests
from pipeline_config import PipelineConfig, parse_config
from pipeline_store import identity, uris
from pipeline_store.details import ObjectDetails
from pipeline_store.formats import (
    LineageLease,
    ModelVersion,
    PartitionManifest,
    RunPlan,
    RunRecord,
)
from pipeline_store.layout import LineageLayout, RunLayout, StoreLayout
from trained_models import record_sources
from trained_models.decided_steps import RowCounts
from trained_models.errors import UserError

Named = TypeVar("Named")

DecideSteps = Callable[[PipelineConfig, RowCounts], int | None]
"""Returns the steps of ``training.train_steps=auto`` for such rows; None: a number is configured.

It raises UserError if the run should not be trained for so long, or cannot be at all.
"""


class SeenAlreadyError(RegistryError):
    """The model in production was trained on the partition's present text: nothing is new."""


def make_plan(
    store: StoreLayout,
    run: RunLayout,
    lease: LineageLease,
    manifest_uri: str,
    decide_steps: DecideSteps,
) -> RunPlan:
    """Decide what a run trains on and for how long, or return what an earlier call decided.

    The run starts from the model in production and is compared with it. It trains on its own
    partition; with ``training.partitions=left_out`` also on those that earlier runs have tried and
    not learned, with ``unseen`` on every other prepared one that this model has not seen, except
    those in quarantine (:mod:`model_registry.attempts`). With ``training.replay_fraction`` the
    partitions that it has seen are replayed, except those whose rows no longer fit the
    configuration. These rows determine the steps if ``training.train_steps=auto``.

    :param lease: the lineage's lease, which the run holds.
    :param manifest_uri: PartitionManifest of the run's own partition.
    :raises SeenAlreadyError: the model in production has seen the partition with the same content.
    :raises StalePlanError: another model was put into production since the run's plan was made.
    :raises RegistryError: the general partition is not prepared for this configuration.
    :raises UserError: the run's own partition does not fit its configuration, or the steps do not
        fit the rows.
    """
    plan = RunPlan.load_or_none(run.plan)
    if plan is None:
        plan = _decide(store, run, lease, manifest_uri, decide_steps)
        if not plan.create(run.plan):
            plan = RunPlan.load(run.plan)
    record = RunRecord.load(run.record)
    require_current(store.lineage(record.lineage_id), run, record)
    return plan


def row_counts(plan: RunPlan, lineage: LineageLayout) -> RowCounts:
    """Return the numbers of rows that a run trains on and replays, with their earlier passes."""
    parent = load_version(lineage, plan.parent_version) if plan.parent_version else None
    return _counts(plan.trained, plan.replayed, EarlierPasses(lineage, parent))


def _counts(trained: dict[str, str], replayed: dict[str, str], earlier: EarlierPasses) -> RowCounts:
    return RowCounts(
        _training_rows(trained.values()),
        _training_rows(replayed.values()),
        new_before=earlier.over(trained.values()),
        replayed_before=earlier.over(replayed.values()),
    )


def _training_rows(manifests: Iterable[str]) -> int:
    return sum(PartitionManifest.load(uri).training_rows for uri in manifests)


def require_current(lineage: LineageLayout, run: RunLayout, record: RunRecord) -> None:
    """Check that the model that a run's plan starts from is still in production, if it has a plan.

    A run whose own version is in production has done its work; doing it again changes nothing.

    :raises StalePlanError: it is not, for example after a rollback.
    """
    plan = RunPlan.load_or_none(run.plan)
    if plan is None:
        return
    in_use = production(lineage)
    current = in_use.version_id if in_use else None
    if current not in (plan.parent_version, identity.version_id(record.run_key)):
        raise StalePlanError(
            f"Run {record.run_key} was planned from {plan.parent_version or 'no model'}, but "
            f"{current or 'no model'} is in use now ({lineage.production}). What it has trained "
            "would continue a model that is not in use any more: trigger a new run."
        )


def _decide(
    store: StoreLayout,
    run: RunLayout,
    lease: LineageLease,
    manifest_uri: str,
    decide_steps: DecideSteps,
) -> RunPlan:
    record = RunRecord.load(run.record)
    config = parse_config(uris.read(run.config), run.config)
    lineage = store.lineage(record.lineage_id)
    parent = production(lineage)
    seen = verified_manifests(lineage, parent) if parent else {}
    own = record_sources.training_manifest(manifest_uri, store, config)
    if parent is not None and not config.training.train_again:
        _require_unseen(parent, seen, own, manifest_uri)

    trained = {record.partition: manifest_uri}
    quarantined: dict[str, str] = {}
    if config.training.partitions != "own":
        tried = attempts.left_out(lineage)
        wanted = None if config.training.partitions == "unseen" else set(tried)
        more = _unseen(store, lineage, config, {*seen, *trained}, wanted)
        trained |= attempts.joining(tried, record.partition, more)
        barred = [name for name in sorted({*more} & {*tried}) if tried[name].bars(more[name])]
        quarantined = {name: tried[name].reason for name in barred}
    replayed, not_replayed = _replayed(store, config, seen, trained)
    general = general_set(store, lineage, config)
    always = {record.partition, *general}
    left = best_scores(lineage, parent.version_id).left if parent else []
    return RunPlan(
        partition=record.partition,
        parent_version=parent.version_id if parent else None,
        trained=dict(sorted(trained.items())),
        replayed=replayed,
        not_replayed=not_replayed,
        evaluated=scored_sets(seen | trained | general, always, config.evaluation.max_sets, left),
        scored=_scored(store, lineage, config),
        quarantined=quarantined,
        train_steps=decide_steps(
            config, _counts(trained, replayed, EarlierPasses(lineage, parent))
        ),
        lease_sequence=lease.sequence,
        created=datetime.now(UTC),
    )


def _require_unseen(
    parent: ModelVersion, seen: dict[str, str], own: PartitionManifest, manifest_uri: str
) -> None:
    before = seen.get(own.partition)
    if before is None or PartitionManifest.load(before).content_sha256 != own.content_sha256:
        return
    raise SeenAlreadyError(
        f"Partition {own.partition} was seen already by {parent.version_id}, the model in use, "
        f"with the same content ({manifest_uri}). To train on it once more: training.train_again."
    )


def _unseen(
    store: StoreLayout,
    lineage: LineageLayout,
    config: PipelineConfig,
    known: set[str],
    wanted: set[str] | None,
) -> dict[str, str]:
    """Return the manifests of the other prepared partitions that this run can be trained on.

    :param wanted: partitions to consider; None: all.
    """
    found = {}
    for partition, prepared in _prepared(lineage).items():
        if partition in known or partition == config.evaluation.general_partition:
            continue
        if wanted is not None and partition not in wanted:
            continue
        fitting = [one for one in prepared if _misfit_in_training(one.uri, store, config) is None]
        if fitting:
            found[partition] = _newest(fitting, config)
    return found


def _replayed(
    store: StoreLayout, config: PipelineConfig, seen: dict[str, str], trained: dict[str, str]
) -> tuple[dict[str, str], dict[str, str]]:
    """Return the manifests to replay, and why other seen partitions are left out."""
    replayed: dict[str, str] = {}
    left_out: dict[str, str] = {}
    if not config.training.replay_fraction:
        return replayed, left_out
    for partition, manifest in sorted(seen.items()):
        # If it is trained on again, or was prepared again since, it is no replay.
        if partition in trained:
            continue
        if partition == config.evaluation.general_partition:
            left_out[partition] = "it is evaluation.general_partition, which is not trained on"
        elif misfit := _misfit_in_training(manifest, store, config):
            left_out[partition] = misfit
        else:
            replayed[partition] = manifest
    return replayed, left_out


def general_set(
    store: StoreLayout, lineage: LineageLayout, config: PipelineConfig
) -> dict[str, str]:
    """Return the manifest of the general partition, if one is configured.

    :raises RegistryError: it is not prepared for this configuration.
    """
    partition = config.evaluation.general_partition
    if partition is None:
        return {}
    found, misfits = _evaluable(_prepared(lineage).get(partition, []), store, config)
    if found is None:
        raise RegistryError(
            f"evaluation.general_partition: {partition!r} has no manifest that this configuration "
            f"can be evaluated on in {lineage.manifests(partition)}"
            f"{'; ' if misfits else ''}{'; '.join(misfits)}. Prepare it once: python -m "
            f"beam_jobs.prepare_corpus --config CONFIG --store {store.root} --partition {partition}"
        )
    return {partition: found}


def partitions_to_score(lineage: LineageLayout, config: PipelineConfig) -> list[str]:
    """Return the prepared partitions whose names ``evaluation.pattern`` matches, sorted."""
    patterns = [part.strip() for part in (config.evaluation.pattern or "").split(",")]
    return sorted(
        name
        for name in _prepared(lineage)
        if any(fnmatchcase(name, pattern) for pattern in patterns)
    )


def _scored(store: StoreLayout, lineage: LineageLayout, config: PipelineConfig) -> dict[str, str]:
    """Return the manifests whose held-out rows checkpoints are scored on, if not the run's own.

    :raises RegistryError: the pattern matches none, or one that does not fit the configuration.
    """
    if config.evaluation.pattern is None:
        return {}
    prepared, scored = _prepared(lineage), {}
    for partition in partitions_to_score(lineage, config):
        found, misfits = _evaluable(prepared[partition], store, config)
        if found is None:
            raise RegistryError(
                f"evaluation.pattern matches {partition}, of which nothing fits this "
                f"configuration: {'; '.join(misfits)}"
            )
        scored[partition] = found
    if not scored:
        raise RegistryError(
            f"evaluation.pattern {config.evaluation.pattern!r} matches none of the prepared "
            f"partitions of {lineage.partitions} ({', '.join(sorted(prepared))})."
        )
    return scored


def _evaluable(
    prepared: list[ObjectDetails], store: StoreLayout, config: PipelineConfig
) -> tuple[str | None, list[str]]:
    """Return a partition's newest manifest that can be evaluated on, and why others cannot."""
    fitting, misfits = [], []
    for one in prepared:
        try:
            record_sources.load_manifest(one.uri, store, config)
        except UserError as error:
            misfits.append(str(error))
        else:
            fitting.append(one)
    return _newest(fitting, config) if fitting else None, misfits


def _prepared(lineage: LineageLayout) -> dict[str, list[ObjectDetails]]:
    """Return the manifests of every partition of the lineage."""
    found: dict[str, list[ObjectDetails]] = {}
    for one in uris.list_details(lineage.partitions):
        if one.uri.endswith(".json"):
            found.setdefault(one.uri.split("/")[-2], []).append(one)
    return found


def _newest(found: list[ObjectDetails], config: PipelineConfig) -> str:
    """Return the newest manifest; those of this very configuration take precedence."""

    def age(one: ObjectDetails) -> tuple[bool, datetime, str]:
        is_own = PartitionManifest.load(one.uri).config_sha256 == config.data_sha256
        return is_own, one.modified, one.uri

    return max(found, key=age).uri


def _misfit_in_training(uri: str, store: StoreLayout, config: PipelineConfig) -> str | None:
    try:
        record_sources.training_manifest(uri, store, config)
    except UserError as error:
        return str(error)
    return None
