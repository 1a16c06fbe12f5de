"""Estimates a fine-tuning run's time and cost before it starts, and labels them as estimates."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date

from corpus.errors import UserError
from pipeline_config import ConfigError, FinetuningConfig, PipelineConfig, parse_finetuning_config
from pipeline_config.accelerators import chips
from pipeline_config.finetuning_rules import finetuning_worst_case_cost
from pipeline_store import request_paths, uris
from pipeline_store.formats import FinetuningPlan, RunEstimate, TaskManifest, TaskSplit, TrialResult
from pipeline_store.layout import StoreLayout
from preflight.estimates.egress import egress_lines, finetuning_traffic
from preflight.estimates.prices import price_finding, price_text
from preflight.estimates.speed import ASSUMED_UTILIZATION
from preflight.findings import Row, Status
from preflight.finetuning_settings import encoder_config, rental_settings, trial_count
from trained_models.errors import JobError as ModelError
from trained_models.flops import peak_flops
from trained_models.text_to_text.sizes import describe, forward_flops

logger = logging.getLogger(__name__)

_TRAINED, _FORWARD_ONLY = 3, 1
"""Factors on the FLOPs of a forward pass. The backward pass multiplies twice: for the gradients of
inputs and of weights."""

_LOOKED_AT = 5
_COUNTED_BYTES = 4 * 2**20
_LINE_FORMATS = ("tsv", "csv", "jsonl")


@dataclass(frozen=True)
class _Examples:
    """The number of a task's training examples, and how it is known."""

    count: int
    basis: str


def estimate(config: FinetuningConfig, store: StoreLayout) -> RunEstimate:
    """Return the estimate of a run, in numbers and in readable lines.

    It is made before any check, so unreadable files only make the estimate less precise.

    :param config: as :func:`preflight.finetuning_settings.completed` returns it.
    """
    examples = {task: _known_examples(config, store, task) for task in config.finetuning.tasks}
    counts = {task: found.count for task, found in examples.items() if found is not None}
    encoder = _encoder_or_none(config, store)
    found = _numbers(config, store, encoder, counts, is_complete=len(counts) == len(examples))
    lines = [
        *_lines(config, found),
        *egress_lines(config, store, lambda _: finetuning_traffic(config, encoder)),
        *(
            f"examples: {task}: about {known.count:,} to train on ({known.basis})"
            if (known := examples[task])
            else f"examples: {task}: not known before it is prepared"
            for task in config.finetuning.tasks
        ),
        *_warnings(config, found),
    ]
    return found.model_copy(update={"lines": lines})


def plan_lines(config: FinetuningConfig, plan: FinetuningPlan, store: StoreLayout) -> Iterator[str]:
    """Yield the lines of the estimate with the true sizes of the prepared tasks."""
    counts = {}
    for task, uri in plan.manifests.items():
        records = TaskManifest.load(uri).splits.get(TaskSplit.TRAIN)
        counts[task] = records.records if records else 0
    encoder = _encoder_or_none(config, store)
    yield from _lines(config, _numbers(config, store, encoder, counts, is_complete=True))
    for number, share in enumerate(plan.shares(config.finetuning.parallel_tpus)):
        names = ", ".join(trial.trial_id for trial in share)
        yield f"TPU {number}: {len(share)} training(s): {names}"


def _numbers(
    config: FinetuningConfig,
    store: StoreLayout,
    encoder: PipelineConfig | None,
    counts: dict[str, int],
    *,
    is_complete: bool,
) -> RunEstimate:
    """Return the numbers of a run.

    :param counts: number of examples by task.
    :param is_complete: whether the counts of all tasks are known.
    """
    recipe, budget = config.finetuning, config.budget
    per_task = trial_count(config) // max(len(recipe.tasks), 1)
    steps = per_task * sum(steps_of(config, count) for count in counts.values())
    if recipe.source_run is not None:
        # Nothing is trained.
        steps = 0
    rows = steps * recipe.global_batch_size
    rate, basis = _examples_per_second(config, store, encoder)
    hours = rows / rate / 3600 if rate and is_complete and rows else None
    chip_hours = None if hours is None else hours * chips(config.tpu.accelerator_type)
    return RunEstimate(
        train_steps=steps,
        rows=rows,
        tokens=rows * sum(_lengths(config)),
        chip_hours=chip_hours,
        hours=hours,
        cost=None if chip_hours is None else chip_hours * budget.price_per_chip_hour,
        currency=budget.currency,
        worst_case_cost=finetuning_worst_case_cost(config),
        basis=basis if is_complete else "the size of a task is not known yet",
        lines=[],
    )


def _lengths(config: FinetuningConfig) -> tuple[int, int]:
    """Return the maximum tokens of an example's text and of its target, which only a T5 has."""
    text = config.text_to_text
    if text.init_checkpoint is None:
        return config.finetuning.max_seq_length, 0
    return text.max_source_length, text.max_target_length


def steps_of(config: FinetuningConfig, examples: int) -> int:
    """Return the steps of one training on the given number of examples, at least one."""
    recipe = config.finetuning
    used = examples * recipe.train_fraction * recipe.num_train_epochs
    return max(1, round(used / recipe.global_batch_size))


def _lines(config: FinetuningConfig, found: RunEstimate) -> Iterator[str]:
    recipe, budget, tpu = config.finetuning, config.budget, config.tpu
    time = "not known"
    if found.hours is not None and found.chip_hours is not None:
        time = (
            f"{found.hours:.3g} h of TPU in all, {found.chip_hours:.3g} chip-hours, "
            f"{found.cost:,.2f} {budget.currency}"
        )
    yield f"estimate: {time}"
    yield f"by: {found.basis}"
    if recipe.source_run is None:
        models = ", ".join(["model", *config.encoder.compare_with])
        yield (
            f"trials: {trial_count(config)} = {len(recipe.tasks)} task(s) x models ({models}) x "
            f"{len(recipe.learning_rates)} rate(s) x {len(recipe.random_seeds)} seed(s)"
        )
        yield (
            f"training: {found.train_steps:,} steps of {recipe.global_batch_size} examples in all, "
            f"{found.tokens:,} tokens, padding included; measuring is not counted"
        )
    else:
        yield f"models: those that run {recipe.source_run} has trained; nothing is trained"
    yield (
        f"TPU: {recipe.parallel_tpus} x {tpu.accelerator_type}, {tpu.provisioning_model}, in "
        f"{', '.join(tpu.zones)}, each for at most {budget.max_hours:g} h"
    )
    yield (
        f"cost: at most {found.worst_case_cost:,.2f} {budget.currency}, an estimate, at "
        f"{price_text(budget, tpu)}"
    )


def _warnings(config: FinetuningConfig, found: RunEstimate) -> Iterator[str]:
    budget, tpus = config.budget, config.finetuning.parallel_tpus
    if found.hours is not None and found.hours / tpus > budget.max_hours:
        yield (
            f"WARNING: budget.max_hours: {budget.max_hours:g} h a TPU are less than the estimated "
            f"{found.hours / tpus:.3g}, so the run may be stopped before its last training. Raise "
            "it, train fewer, or raise finetuning.parallel_tpus."
        )
    price = price_finding(rental_settings(config), date.today())
    if price.status is not Status.OK:
        yield f"WARNING: {Row('budget.price_per_chip_hour', price).line}"


def _known_examples(config: FinetuningConfig, store: StoreLayout, task: str) -> _Examples | None:
    """Return about how many training examples a task has; None if it is unknown."""
    try:
        return _of_manifest(store, task) or _of_files(store, task)
    except (OSError, ValueError, UserError, ConfigError) as error:
        logger.info("The size of task %s is not known: %s", task, error)
        return None


def _of_manifest(store: StoreLayout, task: str) -> _Examples | None:
    newest = max(
        uris.list_named(store.task(task).prepared, "manifest.json"),
        key=lambda file: file.modified,
        default=None,
    )
    if newest is None:
        return None
    records = TaskManifest.load(newest.uri).splits.get(TaskSplit.TRAIN)
    return _Examples(records.records if records else 0, "as it was prepared last")


def _of_files(store: StoreLayout, name: str) -> _Examples | None:
    """Count lines of the task's training files, extrapolating from the beginning of large ones."""
    # Imported lazily, as in the checks.
    from beam_jobs.labelled.description import load_task, task_files
    from corpus.labelled.reading import file_format

    if not uris.exists(store.task(name).description):
        return None
    task = load_task(store, name)
    count = 0.0
    for uri in task_files(store, name, task)[TaskSplit.TRAIN]:
        is_plain = uri.endswith(_LINE_FORMATS)
        if file_format(uri, task) not in _LINE_FORMATS or not is_plain:
            return None
        with request_paths.open_stream(uri) as stream:
            head = stream.read(_COUNTED_BYTES)
        count += head.count(b"\n") * uris.size(uri) / max(len(head), 1)
    held_out = (0.0 if task.validation else task.validation_fraction) + (
        0.0 if task.test else task.test_fraction
    )
    return _Examples(round(count * (1 - held_out)), "by the lines of its files")


def _encoder_or_none(config: FinetuningConfig, store: StoreLayout) -> PipelineConfig | None:
    if config.text_to_text.init_checkpoint is not None:
        return None
    try:
        return encoder_config(config, store)
    except (OSError, ValueError) as error:
        logger.info("The model's size is not known: %s", error)
        return None


def _examples_per_second(
    config: FinetuningConfig, store: StoreLayout, encoder: PipelineConfig | None
) -> tuple[float | None, str]:
    """Return the training speed in examples per second, and its source in words."""
    flops = _flops(config, store, encoder)
    if flops is None:
        return None, "no basis: the model that is to be fine-tuned is not known"
    for result in _finished_trials(store, config):
        rate = result.examples_per_second
        return rate, (
            f"trial {result.trial.trial_id} of an earlier run of this lineage learned from "
            f"{rate:.3g} examples a second with the same settings"
        )
    peak = peak_flops(config.tpu.accelerator_type)
    if config.finetuning.distribution_strategy != "tpu" or peak is None:
        return None, (
            "no basis: neither a run like it nor the peak of its chips is known; the budgets are "
            "the only limit"
        )
    return peak * ASSUMED_UTILIZATION / flops, (
        f"no run like it is known; {flops / 1e9:.3g} GFLOP an example, counted from the settings, "
        f"at an assumed {ASSUMED_UTILIZATION:.0%} of the peak of {config.tpu.accelerator_type}, "
        f"{peak / 1e12:,.0f} TFLOP/s"
    )


def _flops(
    config: FinetuningConfig, store: StoreLayout, encoder: PipelineConfig | None
) -> int | None:
    """Return the model FLOPs of training on one example; None: the model is not known."""
    folder = config.text_to_text.init_checkpoint
    if folder is None:
        return None if encoder is None else example_flops(config, encoder)
    try:
        return _TRAINED * forward_flops(describe(store.resolve(folder)), *_lengths(config))
    except (OSError, ValueError, ModelError) as error:
        logger.info("The model's size is not known: %s", error)
        return None


def example_flops(config: FinetuningConfig, encoder: PipelineConfig) -> int:
    """Return the model FLOPs of training on one example; matrix products only, 2mnk each."""
    model, length = encoder.model, config.finetuning.max_seq_length
    hidden, inner = model.hidden_size, model.intermediate_size
    # Per token: four attention projections, two feed-forward ones, attention scores and sums.
    layer = 8 * hidden * hidden + 4 * hidden * inner + 4 * length * hidden
    passes = _FORWARD_ONLY if config.finetuning.frozen_encoder else _TRAINED
    return passes * (length * model.num_hidden_layers * layer + 2 * hidden * hidden)


_LIKE = (
    "max_seq_length",
    "global_batch_size",
    "frozen_encoder",
    "mixed_precision_dtype",
    "distribution_strategy",
    "steps_per_loop",
)


def _finished_trials(store: StoreLayout, config: FinetuningConfig) -> Iterator[TrialResult]:
    """Yield a trial from each of the newest finished runs whose steps were like this run's."""
    reports = uris.list_named(store.runs, "training_summary.json")
    newest = sorted(reports, key=lambda file: file.modified, reverse=True)[:_LOOKED_AT]
    for file in newest:
        run = store.run(file.uri.split("/")[-2])
        try:
            plan = FinetuningPlan.load(run.finetuning_plan)
            before = TrialResult.load(run.trial(plan.trials[0].trial_id).result)
            begun = parse_finetuning_config(uris.read(run.config), run.config)
        except (OSError, ValueError, IndexError):
            # A run whose files are gone or no longer readable tells nothing.
            continue
        wanted = config.finetuning.model_dump(mode="json", include=set(_LIKE))
        alike = all(before.settings.get(name) == value for name, value in wanted.items())
        alike &= begun.tpu.accelerator_type == config.tpu.accelerator_type
        alike &= begun.text_to_text == config.text_to_text
        if alike and plan.lineage_id == config.encoder.lineage_id:
            yield before
