"""All checks before a fine-tuning run that need to read files or ask the cloud."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path

from corpus.errors import UserError
from model_registry import finetuning_plans
from model_registry.errors import RegistryError
from model_registry.production import production
from model_registry.versions import verify
from pipeline_config import (
    ConfigError,
    FinetuningConfig,
    parse_finetuning_config,
)
from pipeline_config.training_schema import TrainingConfig
from pipeline_store import request_paths, uris
from pipeline_store.formats import TrialResult, VocabularyInfo
from pipeline_store.layout import StoreLayout, TrialLayout
from pipeline_store.request_paths import OutsideRootsError
from preflight.estimates.sizes import checkpoint_bytes, size_text, text_checkpoint_bytes
from preflight.finetuning_settings import encoder_config, trial_count
from preflight.run.checks import common_checks, run_checks
from preflight.run.disk import existing_folder
from trained_models.artifacts import model_files
from trained_models.errors import JobError
from trained_models.importing.sources import weight_files
from trained_models.text_to_text.sizes import describe

_MARGIN = 1.25
"""Factor for files that are not counted: logs, events, predictions."""

_GONE = "Retention keeps the newest classifiers of each task; train it again, or use a newer run"


def idle_reason(config: FinetuningConfig, store: StoreLayout) -> str | None:
    """Return why an automatically started run has nothing to do; None: it has something to do."""
    if not config.finetuning.tasks and config.finetuning.source_run is None:
        return (
            "finetuning.tasks is empty in this installation's preset "
            "(REPRETRAIN_FINETUNING_PRESET). How to describe a task: "
            "docs/reference/finetuning-data.md."
        )
    lineage = store.lineage(config.encoder.lineage_id)
    is_of_encoder = config.text_to_text.init_checkpoint is None
    if is_of_encoder and config.encoder.version is None and production(lineage) is None:
        return f"no model of lineage {config.encoder.lineage_id!r} is in use yet."
    return None


def check(
    config: FinetuningConfig,
    store: StoreLayout,
    *,
    location: Callable[[str], str | None] = uris.location,
) -> list[str]:
    """Return one line for every reason why a run cannot succeed; empty if there is none.

    :param config: as :func:`completed` returns it.
    :param location: returns the location of a URI's storage, such as ``US-CENTRAL1``.
    """
    checks: dict[str, Callable[[], Iterable[str]]] = {
        "finetuning.tasks": lambda: _task_problems(config, store),
        "encoder.version": lambda: _model_problems(config, store),
        "finetuning.source_run": lambda: _source_problems(config, store),
        "store": lambda: _disk_problems(config, store),
        **common_checks(config, store, location),
    }
    return run_checks(store, checks)


def _task_problems(config: FinetuningConfig, store: StoreLayout) -> Iterator[str]:
    # Imported lazily: it needs libraries that would slow the parsing of a DAG file.
    from beam_jobs.labelled.description import check_task
    from training.text_to_text.preparation import check_mixture

    if config.finetuning.mode == "export":
        return
    if config.finetuning.mode == "predict":
        yield from _predict_problems(config, store)
        return
    check = check_task if config.text_to_text.init_checkpoint is None else check_mixture
    for task in config.finetuning.tasks:
        yield from (f"finetuning.tasks: {line}" for line in check(store, task))


def _predict_problems(config: FinetuningConfig, store: StoreLayout) -> Iterator[str]:
    """Yield a line for every task without existing files to predict."""
    for task in config.finetuning.tasks:
        try:
            predict_files(store, task)
        except (ConfigError, UserError) as error:
            yield f"finetuning.tasks: {error}"


def predict_files(store: StoreLayout, task: str) -> list[str]:
    """Return the files of a task whose labels are to be predicted.

    :raises ConfigError: the task has no description, or that names no files to predict.
    :raises UserError: its pattern matches no file.
    """
    from beam_jobs.labelled.description import load_task
    from corpus.text.inputs import list_inputs

    pattern = load_task(store, task).predict
    if pattern is None:
        raise ConfigError([f"task {task!r}: predict is empty; name the files in its task.toml."])
    return list_inputs(pattern, "", StoreLayout(store.task(task).root), f"task {task!r}: predict")


def _model_problems(config: FinetuningConfig, store: StoreLayout) -> Iterator[str]:
    """Yield a line for every reason why the models cannot be fine-tuned."""
    if config.text_to_text.init_checkpoint is not None:
        yield from _t5_problems(store.resolve(config.text_to_text.init_checkpoint))
        return
    lineage = store.lineage(config.encoder.lineage_id)
    try:
        version = verify(lineage, str(config.encoder.version))
        if config.finetuning.source_run is None:
            finetuning_plans.compared_models(store, config)
    except RegistryError as error:
        yield f"encoder.version: {error}"
        return
    vocabulary = VocabularyInfo.load_or_none(lineage.vocabulary_info)
    if vocabulary is None:
        yield (
            f"encoder.lineage_id: lineage {config.encoder.lineage_id!r} has no vocabulary "
            f"({lineage.vocabulary_info}), so no text can become tokens. Restore it."
        )
    elif vocabulary.sha256 != version.vocabulary_sha256:
        yield (
            f"encoder.version: {version.version_id} was trained with another vocabulary "
            f"({version.vocabulary_sha256}) than {lineage.vocabulary} ({vocabulary.sha256})."
        )
    if config.finetuning.mode in ("export", "predict"):
        return  # the rows have the length with which the classifier was trained
    model = encoder_config(config, store).model
    if model.has_decoder:
        yield (
            f"encoder.lineage_id: {config.encoder.lineage_id} is a lineage of T5, on which no "
            "classifier stands. Fine-tune its export from text to text: name that folder as "
            "text_to_text.init_checkpoint."
        )
    positions = model.max_position_embeddings
    if config.finetuning.max_seq_length > positions:
        yield (
            f"finetuning.max_seq_length: {config.finetuning.max_seq_length} tokens do not fit "
            f"{version.version_id}, which has {positions} positions; use at most so many."
        )


def _t5_problems(folder: str) -> Iterator[str]:
    from training.text_to_text.rows import Tokenizer, read_sentencepiece

    try:
        Tokenizer(read_sentencepiece(folder), describe(folder))
        weight_files(folder, partial(request_paths.read, model=True))
    except (JobError, OutsideRootsError) as error:
        yield f"text_to_text.init_checkpoint: {error}"


def _source_problems(config: FinetuningConfig, store: StoreLayout) -> Iterator[str]:
    """Yield a line for every reason why the models of another run cannot be used."""
    recipe = config.finetuning
    if recipe.source_run is None:
        return
    source = store.run(recipe.source_run)
    try:
        plan = finetuning_plans.source_plan(store, config)
        trials = list(finetuning_plans.used_trials(store, config, plan))
    except RegistryError as error:
        yield str(error)
        return
    for trial in trials:
        if problem := _unusable(source.trial(trial.trial_id)):
            yield f"finetuning.source_run: {trial.trial_id} of run {recipe.source_run} {problem}"
    for task in sorted({trial.task for trial in trials}):
        if not uris.exists(uri := store.resolve(plan.manifests[task])):
            yield (
                f"finetuning.source_run: {uri}, which says what run {recipe.source_run} has "
                f"trained on of task {task}, is not there any more. {_GONE}."
            )
    if recipe.mode != "eval":
        return
    trained = parse_finetuning_config(uris.read(source.config), source.config).finetuning
    if recipe.max_seq_length != trained.max_seq_length:
        yield (
            f"finetuning.max_seq_length: {recipe.max_seq_length}, but run {recipe.source_run} has "
            f"trained on rows of {trained.max_seq_length} tokens; use that."
        )


def _unusable(trial: TrialLayout) -> str | None:
    """Return why a trial's classifier cannot be used, or None; does not read its weights."""
    if TrialResult.load_or_none(trial.result) is None:
        return f"is not done: there is no {trial.result}. Let its run end first."
    try:
        model = model_files(trial.training.root)
    except (JobError, FileNotFoundError) as error:
        return f"has no weights any more: {error}. {_GONE}."
    for file in model.files:
        uri = uris.join(model.folder, file.path)
        if not uris.exists(uri) or uris.size(uri) != file.bytes:
            return f"has no weights any more: {uri} is missing or cut. {_GONE}."
    return None


def _disk_problems(config: FinetuningConfig, store: StoreLayout) -> Iterator[str]:
    """Yield a line if the disk of a local store has less space than the run needs."""
    if uris.is_cloud(store.root) or config.finetuning.source_run is not None:
        return
    needed = needed_bytes(config, store)
    free = shutil.disk_usage(existing_folder(Path(uris.for_library(store.root)))).free
    if needed > free:
        yield (
            f"store: {store.root} has {size_text(free)} of disk left, and the run needs about "
            f"{size_text(needed)} (an estimate): the checkpoints of "
            f"{trial_count(config)} trainings. Free some, use another store, or train fewer."
        )


def needed_bytes(config: FinetuningConfig, store: StoreLayout) -> int:
    """Return about how many bytes the run's trials add to the store in checkpoints."""
    # One is written while max_to_keep others exist; the best one is kept in addition.
    kept = TrainingConfig().max_to_keep + 1 + config.finetuning.keep_best
    if (folder := config.text_to_text.init_checkpoint) is not None:
        weights = text_checkpoint_bytes(describe(store.resolve(folder)))
    else:
        weights = checkpoint_bytes(encoder_config(config, store))
    return int(_MARGIN * trial_count(config) * kept * weights)
