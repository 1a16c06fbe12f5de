"""Plans what a fine-tuning run trains: models, tasks and trials, decided once per run.

Nothing here takes a lineage's lease: fine-tuning reads published versions, which never change.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime

from model_registry import outcomes
from model_registry.errors import RegistryError
from model_registry.production import production
from model_registry.retention.policy import pruned_versions
from model_registry.versions import list_versions, load_version
from pipeline_config import FinetuningConfig, parse_config
from pipeline_config.finetuning import MODEL
from pipeline_store import identity, uris
from pipeline_store.formats import (
    EncoderSource,
    FinetuningPlan,
    FinetuningReport,
    ModelVersion,
    RunRecord,
    TaskManifest,
    TaskSplit,
    Trial,
)
from pipeline_store.layout import LineageLayout, RunLayout, StoreLayout, VersionLayout
from trained_models.artifacts import model_files

PREVIOUS, START = "previous", "start"
"""The keys of :attr:`FinetuningPlan.models` besides ``MODEL``."""

TPU_MODES = ("train_and_eval", "train", "eval")
"""Values of ``finetuning.mode`` that use TPUs; the others use trained models, without records."""


def prepared_tasks(config: FinetuningConfig) -> list[str]:
    """Return the tasks whose examples a run turns into records."""
    return config.finetuning.tasks if config.finetuning.mode in TPU_MODES else []


def rental_count(config: FinetuningConfig, plan: FinetuningPlan) -> int:
    """Return how many TPUs a run rents."""
    if config.finetuning.mode not in TPU_MODES:
        return 0
    return len(plan.shares(config.finetuning.parallel_tpus))


def make_plan(
    store: StoreLayout, run: RunLayout, config: FinetuningConfig, manifests: Mapping[str, str]
) -> FinetuningPlan:
    """Return the run's plan, made now unless it was made before.

    :param config: the run's, with ``encoder.version`` filled in.
    :param manifests: TaskManifest URI by task.
    :raises RegistryError: a model to be fine-tuned is missing, or a task has no validation examples
        by which to choose among several learning rates.
    """
    plan = FinetuningPlan.load_or_none(run.finetuning_plan)
    if plan is not None:
        return plan
    made = _decide(store, config, manifests)
    if made.create(run.finetuning_plan):
        return made
    return FinetuningPlan.load(run.finetuning_plan)


def chosen_version(store: StoreLayout, config: FinetuningConfig) -> ModelVersion:
    """Return the version to be fine-tuned: the named one, else the one in production.

    :raises RegistryError: it does not exist, or none is in production.
    """
    lineage = store.lineage(config.encoder.lineage_id)
    if config.encoder.version is not None:
        return load_version(lineage, config.encoder.version)
    in_use = production(lineage)
    if in_use is None:
        raise RegistryError(
            f"No model of lineage {config.encoder.lineage_id!r} is in use "
            f"({lineage.production} does not exist). Run bert_repretraining first, or name another "
            "encoder.lineage_id."
        )
    return in_use


def compared_models(store: StoreLayout, config: FinetuningConfig) -> dict[str, EncoderSource]:
    """Return the sources of the weights of all models of a run, by the models' keys.

    :raises RegistryError: one of them is unknown or missing.
    """
    version = chosen_version(store, config)
    lineage = store.lineage(version.lineage_id)
    found = {MODEL: _of_version(lineage, version)}
    if PREVIOUS in config.encoder.compare_with:
        if version.parent is None:
            raise RegistryError(
                f"encoder.compare_with: previous: {version.version_id} is the first version of its "
                "line, trained from no other. Compare it with start."
            )
        found[PREVIOUS] = _of_version(lineage, load_version(lineage, version.parent))
    if START in config.encoder.compare_with:
        found[START] = EncoderSource(uri=_start(store, lineage, version), version_id=None)
    return found


def _text_to_text_model(store: StoreLayout, config: FinetuningConfig) -> dict[str, EncoderSource]:
    """Return the source of a T5's weights, by its key; empty: the run fine-tunes encoders."""
    folder = config.text_to_text.init_checkpoint
    if folder is None:
        return {}
    return {MODEL: EncoderSource(uri=store.resolve(folder), version_id=None)}


def planned_trials(config: FinetuningConfig, tasks: list[str], models: list[str]) -> list[Trial]:
    """Return all trainings of a run: each task with each model, rate and seed."""
    recipe = config.finetuning
    return [
        Trial(
            trial_id=f"{task}.{model}.{rate:g}.{seed}",
            task=task,
            model=model,
            learning_rate=rate,
            random_seed=seed,
        )
        for task in tasks
        for model in models
        for rate in recipe.learning_rates
        for seed in recipe.random_seeds
    ]


def _decide(
    store: StoreLayout, config: FinetuningConfig, manifests: Mapping[str, str]
) -> FinetuningPlan:
    recipe = config.finetuning
    if recipe.source_run is not None:
        source = source_plan(store, config)
        models, trials = source.models, list(used_trials(store, config, source))
        # Models that are only used need no new records.
        manifests = manifests or {
            task: uri for task, uri in source.manifests.items() if task in recipe.tasks
        }
    else:
        _require_choice(store, config, manifests)
        models = _text_to_text_model(store, config) or compared_models(store, config)
        trials = planned_trials(config, recipe.tasks, list(models))
    return FinetuningPlan(
        lineage_id=config.encoder.lineage_id,
        models=models,
        manifests=dict(manifests),
        trials=trials,
        created=datetime.now(UTC),
    )


def _require_choice(
    store: StoreLayout, config: FinetuningConfig, manifests: Mapping[str, str]
) -> None:
    """Check that each task has validation examples to choose among several learning rates.

    :raises RegistryError: one has no validation examples.
    """
    rates = config.finetuning.learning_rates
    if len(rates) == 1:
        return
    for task, uri in manifests.items():
        split = TaskManifest.load(store.resolve(uri)).splits.get(TaskSplit.VALIDATION)
        if split is None or not split.records:
            raise RegistryError(
                f"finetuning.learning_rates: task {task!r} has no validation examples, so nothing "
                f"says which of {', '.join(f'{rate:g}' for rate in rates)} is the best. Give it "
                f"some (validation or validation_fraction in tasks/{task}/task.toml), or name one "
                "rate."
            )


def source_plan(store: StoreLayout, config: FinetuningConfig) -> FinetuningPlan:
    """Return the plan of the run whose trained models are used.

    :raises RegistryError: there is no such fine-tuning run.
    """
    key = config.finetuning.source_run
    plan = FinetuningPlan.load_or_none(store.run(str(key)).finetuning_plan)
    if plan is None:
        raise RegistryError(
            f"finetuning.source_run: {key} is no fine-tuning run: there is no "
            f"{store.run(str(key)).finetuning_plan}. Give the name of its folder in {store.runs}."
        )
    if plan.models[MODEL].version_id is None:
        raise RegistryError(
            f"finetuning.source_run: {key} has fine-tuned a T5 and no classifier. Its models are "
            "exported by training.export_text_to_text, a trial's folder being its --run."
        )
    return plan


def used_trials(
    store: StoreLayout, config: FinetuningConfig, source: FinetuningPlan
) -> Iterator[Trial]:
    """Yield the trials of another run whose models are used.

    For measuring: all. For predicting or exporting: the best of each task.

    :param source: the plan of that run.
    :raises RegistryError: it has trained nothing on a task, or its best trials are unknown.
    """
    mode, wanted = config.finetuning.mode, set(config.finetuning.tasks)
    known = {trial.task for trial in source.trials}
    if unknown := sorted(wanted - known):
        raise RegistryError(
            f"finetuning.tasks: run {config.finetuning.source_run} has trained nothing on "
            f"{', '.join(unknown)}; it has {', '.join(sorted(known))}."
        )
    chosen = [trial for trial in source.trials if not wanted or trial.task in wanted]
    if mode == "eval":
        yield from chosen
        return
    place = store.run(str(config.finetuning.source_run)).training_summary
    report = FinetuningReport.load_or_none(place)
    if report is None:
        raise RegistryError(
            f"finetuning.source_run: run {config.finetuning.source_run} has no {place}, so its "
            "best models are not known. Let it end first."
        )
    best = {summary.best_trial for summary in report.tasks if summary.model == MODEL}
    yield from (trial for trial in chosen if trial.trial_id in best)


def _of_version(lineage: LineageLayout, version: ModelVersion) -> EncoderSource:
    uri = lineage.version(version.version_id)
    return EncoderSource(
        uri=uri, version_id=version.version_id, files_sha256=model_files(uri).sha256
    )


def _start(store: StoreLayout, lineage: LineageLayout, version: ModelVersion) -> str | None:
    """Return the weights that a version's first ancestor started from; None: random ones.

    :raises RegistryError: no record of that is left.
    """
    known = {model.version_id: model for model in list_versions(lineage)}
    known |= {key: removed.model for key, removed in pruned_versions(lineage).items()} | known
    first = version
    while first.parent is not None:
        if first.parent not in known:
            raise RegistryError(
                f"encoder.compare_with: start: version {first.parent}, from which "
                f"{first.version_id} was trained, is not in {lineage.root}, so what the line began "
                "with is not known. Leave start out."
            )
        first = known[first.parent]
    # Retention removes versions, but not the records of the runs that made them.
    places = (
        VersionLayout(lineage.version(first.version_id)).config,
        store.run(first.run_key).config,
    )
    for place in places:
        if (data := uris.read_or_none(place)) is not None:
            checkpoint = parse_config(data, place).model.init_checkpoint
            return None if checkpoint is None else store.resolve(checkpoint)
    raise RegistryError(
        f"encoder.compare_with: start: neither {places[0]} nor {places[1]} is there, so what "
        f"{first.version_id} began with is not known. Leave start out."
    )


def make_rentals(store: StoreLayout, run: RunLayout, count: int) -> list[RunLayout]:
    """Return the folders of a run's TPUs, and create those that are missing.

    The first is the run's own. The others have its configuration and a record that names the run;
    their outcomes are written when the run ends.

    :param count: of TPUs.
    """
    if not count:
        return []
    record, config = RunRecord.load(run.record), uris.read(run.config)
    rentals = [run]
    for number in range(1, count):
        key = identity.rental_key(record.run_key, number)
        rental = store.run(key)
        uris.create_if_absent(rental.config, config)
        update = {"run_key": key, "rental_of": record.run_key, "tpu_number": number}
        record.model_copy(update=update).create(rental.record)
        # The run continues, so its rentals do.
        outcomes.reopen(rental)
        rentals.append(rental)
    return rentals
