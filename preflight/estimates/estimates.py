"""Estimates a run's time, cost and data before it starts, and labels them as estimates."""

from __future__ import annotations

import logging
from collections.abc import Iterator

from corpus.rows import waste
from pipeline_config import PipelineConfig
from pipeline_config.accelerators import chips
from pipeline_config.rental_rules import worst_case_cost
from pipeline_store.formats import PartitionManifest, RunEstimate
from pipeline_store.layout import RunLayout, StoreLayout
from preflight.compiled import saved
from preflight.estimates import passes, vm_disk
from preflight.estimates.auto_steps import AutoSteps, auto_steps
from preflight.estimates.egress import egress_lines, pretraining_traffic
from preflight.estimates.prices import price_text
from preflight.estimates.sizes import prepared, row_counts, rows_by_size
from preflight.estimates.speed import Speed, find_speed
from trained_models import decided_steps
from trained_models.decided_steps import RowCounts, fewest_steps, with_steps
from trained_models.phases import phases

logger = logging.getLogger(__name__)

NO_BASIS = (
    "no basis: neither a run like it nor the peak of its chips is known; the budgets are the only "
    "limit"
)


def estimate(config: PipelineConfig, store: StoreLayout | None = None) -> RunEstimate:
    """Return the estimate of a run, in numbers and in readable lines.

    It is made before any check, so an unreadable store only makes the estimate less precise.

    :param config: if ``corpus.partition`` is set, facts about that partition are included.
    :param store: searched for similar runs and the partition's manifest; None: no search.
    """
    try:
        return _estimate(config, store)
    except Exception as error:  # noqa: BLE001 - each kind of store has its own; check names them
        logger.warning(
            "The estimate was made without the store: %s: %s", type(error).__name__, error
        )
        return _estimate(config, None)


def _estimate(asked: PipelineConfig, store: StoreLayout | None) -> RunEstimate:
    manifest, rows, by_size = _known(asked, store)
    config, auto = asked, None
    if asked.training.train_steps == "auto":
        auto = auto_steps(asked, rows or by_size, store)
        config = with_steps(asked, max(auto.steps, fewest_steps(asked)))
    counted = [(phase, phase.end_step - phase.first_step) for phase in phases(config)]
    speed = find_speed(config, store)
    chip_hours = None if speed is None else speed.hours * _chips(config)
    trained = sum(count * phase.global_batch_size for phase, count in counted)
    found = RunEstimate(
        train_steps=config.training.steps,
        rows=trained,
        tokens=_tokens(config),
        chip_hours=chip_hours,
        hours=None if speed is None else speed.hours,
        cost=None if chip_hours is None else chip_hours * config.budget.price_per_chip_hour,
        currency=config.budget.currency,
        worst_case_cost=worst_case_cost(config),
        basis=NO_BASIS if speed is None else speed.basis,
        lines=[],
    )
    lines = [
        f"estimate: {time_and_cost(config, speed)}",
        f"by: {found.basis}",
        *(() if auto is None else _auto_lines(config, auto, rows, by_size)),
        *_lines(config, found),
        *egress_lines(config, store, lambda it: pretraining_traffic(config, rows or by_size, it)),
        *(() if store is None else _partition_lines(asked, config, manifest, rows)),
        *(() if store is None else _disk_lines(config, store)),
        *_warnings(config, found),
    ]
    return found.model_copy(update={"lines": lines})


def _known(
    config: PipelineConfig, store: StoreLayout | None
) -> tuple[PartitionManifest | None, RowCounts | None, RowCounts | None]:
    """Return the partition's manifest and rows, or, for auto, rows estimated from file sizes."""
    partition = config.corpus.partition
    if store is None or partition is None:
        return None, None, None
    manifest = prepared(config, partition, store)
    if manifest is not None:
        return manifest, row_counts(config, manifest, store), None
    is_auto = config.training.train_steps == "auto"
    return None, None, rows_by_size(config, partition, store) if is_auto else None


def write_estimate(run: RunLayout, found: RunEstimate) -> None:
    """Store the estimate with the run, unless an earlier try of the task has done so.

    The first one counts, as it was made before anything was spent.
    """
    found.create(run.estimate)


def planned_lines(config: PipelineConfig, rows: RowCounts, store: StoreLayout) -> Iterator[str]:
    """Yield lines on a planned run, whose rows are counted: steps, time, cost and passes.

    :param config: with its steps decided.
    """
    speed = find_speed(config, store)
    yield f"training: {' and '.join(_step_counts(config))} ({_tokens(config):,} tokens)"
    warmup, interval = config.optimizer.warmup_steps, config.training.checkpoint_interval
    yield f"of these, warm-up: {warmup:,}; a checkpoint every {interval:,}"
    yield f"estimate: {time_and_cost(config, speed)}; by: {speed.basis if speed else NO_BASIS}"
    if rows.new:
        yield f"rows: {_passes_words(config, rows)}"
        yield from passes.warnings(config, rows)


def time_and_cost(config: PipelineConfig, speed: Speed | None) -> str:
    """Return the TPU time and its cost in words."""
    if speed is None:
        return "not known"
    budget, hours = config.budget, speed.hours * _chips(config)
    cost = f"{hours * budget.price_per_chip_hour:,.2f} {budget.currency}"
    return f"{_hours(speed.hours)} of TPU, {hours:.3g} chip-hours, {cost}"


def _lines(config: PipelineConfig, found: RunEstimate) -> Iterator[str]:
    training, tpu = config.training, config.tpu
    where = f"{tpu.accelerator_type}, {tpu.provisioning_model}, in {', '.join(tpu.zones)}"
    if tpu.slice_count > 1:
        where = f"{tpu.slice_count} slices of {where}"
    held_out = f"{config.corpus.validation_fraction:.0%} of the documents"
    yield f"data: {', '.join(_data_words(config))}"
    yield f"training: {' and '.join(_step_counts(config))} ({found.tokens:,} tokens)"
    yield f"evaluation: on {held_out}, chosen by their content and never trained on"
    yield f"TPU: {where}, for at most {config.budget.max_hours:g} h"
    yield f"cost: {_cost_words(config)}"
    yield f"budgets: {', '.join(_budget_words(config))}"
    if training.distribution_strategy == "tpu":
        yield f"step: {_step_words(config)}"


def _tokens(config: PipelineConfig) -> int:
    """Return the token positions in the rows of all steps, padding included."""
    return sum(
        (phase.end_step - phase.first_step) * phase.global_batch_size * phase.max_seq_length
        for phase in phases(config)
    )


def _step_counts(config: PipelineConfig) -> Iterator[str]:
    for phase in phases(config):
        count, rows = phase.end_step - phase.first_step, phase.global_batch_size
        yield (
            f"{count:,} steps of {rows:,} rows = {count * rows:,} rows of at most "
            f"{phase.max_seq_length} tokens"
        )


def _auto_lines(
    config: PipelineConfig, auto: AutoSteps, rows: RowCounts | None, by_size: RowCounts | None
) -> Iterator[str]:
    """Yield lines on the steps of auto, as far as they can be known before the plan.

    :param rows: the prepared rows; None: not prepared.
    :param by_size: the rows estimated from file sizes; None: not needed, or not known.
    """
    how = "at most" if rows is None and by_size is None else "about"
    yield f"training.train_steps: auto, {how} {auto.steps:,} steps: {auto.because}"
    if by_size is not None:
        yield "rows: guessed by the size of the files, and counted when they are prepared"
    if (fewest := fewest_steps(config)) > auto.steps:
        yield (
            f"WARNING: training.train_steps: auto is fewer than the {fewest} steps that are "
            f"needed, and the run {'will' if rows is not None else 'would'} be refused; what "
            f"follows is for {fewest} steps. Use a smaller training.global_batch_size, or train on "
            "more."
        )


def _partition_lines(
    asked: PipelineConfig,
    config: PipelineConfig,
    manifest: PartitionManifest | None,
    rows: RowCounts | None,
) -> Iterator[str]:
    """Yield lines on how often the steps pass over the partition's rows, if these are known.

    :param config: ``asked``, with a number of steps.
    """
    partition = config.corpus.partition
    if partition is None:
        return
    if manifest is None or rows is None:
        yield f"rows: not known before partition {partition} is prepared with these settings"
        return
    batch = phases(config)[0].global_batch_size
    if rows.new:
        documents = f"of {manifest.documents:,} documents in {partition}"
        yield f"rows: {_passes_words(config, rows, documents)}"
        problem = passes.refusal(config, rows)
        if problem and asked.training.train_steps != "auto":
            yield f"WARNING: as it was prepared last, the run will be refused: {problem}"
        else:
            yield from passes.warnings(config, rows)
    yield from (f"WARNING: {partition}: {line}" for line in waste.warnings(manifest))
    if rows.new < batch:
        yield (
            f"WARNING: training.global_batch_size: {batch:,} rows a step, but partition "
            f"{partition} has {rows.new:,} to train on. Use a smaller batch, or train on more."
        )


def _disk_lines(config: PipelineConfig, store: StoreLayout) -> Iterator[str]:
    partition = config.corpus.partition
    copied = None if partition is None else vm_disk.estimated(config, partition, store)
    if copied is not None:
        yield vm_disk.disk_line(config, copied)


def _passes_words(config: PipelineConfig, rows: RowCounts, documents: str = "to train on") -> str:
    words = (
        f"{rows.new:,} {documents}, which the steps go over "
        f"{decided_steps.passes(config, rows):.3g} times"
        f"{passes.after_earlier_runs(rows.new_before)}"
    )
    if not rows.replayed:
        return words
    again = decided_steps.replay_passes(config, rows)
    earlier = passes.after_earlier_runs(rows.replayed_before)
    return f"{words}, and {rows.replayed:,} replayed, {again:.3g} times{earlier}"


def _warnings(config: PipelineConfig, found: RunEstimate) -> Iterator[str]:
    """Yield a line for each budget that the estimate exceeds, and for a missing safeguard."""
    budget = config.budget
    if config.model.init_checkpoint is not None and config.evaluation.general_partition is None:
        yield (
            "WARNING: evaluation.general_partition: empty, so nothing watches what a first update "
            "forgets of the general language that its model came with; see "
            "docs/guides/first-real-model.md, step 3."
        )
    if found.hours is not None and found.hours > budget.max_hours:
        yield (
            f"WARNING: budget.max_hours: {budget.max_hours:g} h are less than the estimated "
            f"{_hours(found.hours)}, so the run may be stopped before its last step. Raise it, or "
            "lower training.train_steps."
        )
    limit = budget.chip_hours_limit
    if found.chip_hours is not None and limit is not None and found.chip_hours > limit[1]:
        yield (
            f"WARNING: {limit[0]}: {limit[1]:.4g} are less than the estimated "
            f"{found.chip_hours:.3g} chip-hours, so the run may be stopped before its last step. "
            "Raise it, or lower training.train_steps."
        )


def _cost_words(config: PipelineConfig) -> str:
    budget, count = config.budget, _chips(config)
    amount = f"{count} {_plural('chip', count)} x {budget.max_hours:g} h"
    limit = budget.chip_hours_limit
    if limit is not None and limit[1] < count * budget.max_hours:
        amount = f"{limit[1]:.4g} chip-hours ({limit[0]})"
    price = price_text(budget, config.tpu)
    cost = f"{worst_case_cost(config):,.2f} {budget.currency}"
    return f"at most {cost}, an estimate: {amount} x {price}"


def _budget_words(config: PipelineConfig) -> Iterator[str]:
    """Yield the limits that end a run early."""
    budget = config.budget
    yield f"at most {budget.max_preemptions} lost TPUs"
    yield f"{budget.max_stalled_attempts} of them in a row without a new checkpoint"
    yield f"{budget.max_failures} restarts of a killed trainer on one TPU"
    yield f"{budget.max_hangs} of one that hangs"


def _step_words(config: PipelineConfig) -> str:
    """Return the TPU compiler's figures of the training step, if it was ever compiled."""
    figures = saved.find(config)
    if figures is None:
        return (
            "not compiled with these settings yet: in a clone of the repository, "
            "make tpu-compile-check shows how"
        )
    return (
        f"{figures.rows} rows take {figures.hbm_gib:.1f} GiB of a {figures.chip} chip's memory and "
        f"{figures.tflop:.3g} TFLOP, an estimate of the TPU compiler (libtpu {figures.libtpu})"
    )


def _data_words(config: PipelineConfig) -> Iterator[str]:
    """Yield phrases on the rows that the data job writes, and on where it runs."""
    masking, beam = config.masking, config.beam
    yield f"rows of {masking.max_seq_length} tokens"
    if masking.extra_max_seq_length is not None:
        yield f"and of {masking.extra_max_seq_length} beside them, for later runs"
    if masking.dynamic:
        yield "written once, masked anew by the trainer in each epoch"
    elif masking.dupe_factor > 1:
        yield f"each written {masking.dupe_factor} times with other masks"
    if masking.packing == "segment_pair":
        yield "pairs of segments, so next-sentence prediction is trained too"
    if beam.runner == "DataflowRunner":
        most = f"at most {beam.max_num_workers} " if beam.max_num_workers else ""
        machines = f"{most}machines of {beam.worker_machine_type}"
        yield f"on Dataflow in {beam.region}, {machines} (not in the cost)"


def _chips(config: PipelineConfig) -> int:
    return chips(config.tpu.accelerator_type) * config.tpu.slice_count


def _hours(hours: float) -> str:
    """Return a duration in a readable unit."""
    return f"{hours:.3g} h" if hours >= 1 else f"{hours * 60:.3g} min"


def _plural(word: str, count: int) -> str:
    return word if count == 1 else f"{word}s"
