"""What a run will use, said before it starts. Estimates, and called so."""

from __future__ import annotations

from collections.abc import Iterator

from pipeline_config import PipelineConfig
from pipeline_config.rules import chips, worst_case_cost
from tpu_compile_check import saved


def estimate_lines(config: PipelineConfig) -> list[str]:
    """Return a few readable lines on steps, rows, TPU time and cost."""
    training, tpu, length = config.training, config.tpu, config.masking.max_seq_length
    rows = training.train_steps * training.global_batch_size
    steps = f"{training.train_steps:,} steps of {training.global_batch_size:,} rows"
    held_out = f"{config.corpus.validation_fraction:.0%} of the documents"
    where = f"{tpu.accelerator_type}, {tpu.provisioning_model}, in {', '.join(tpu.zones)}"
    if tpu.slice_count > 1:
        where = f"{tpu.slice_count} slices of {where}"
    lines = [
        f"data: {', '.join(_data_words(config))}",
        f"training: {steps} = {rows:,} rows of at most {length} tokens ({rows * length:,} tokens)",
        f"evaluation: on {held_out}, chosen by their content and never trained on",
        f"TPU: {where}, for at most {config.budget.max_hours:g} h",
        f"cost: {_cost_words(config)}",
        f"budgets: {', '.join(_budget_words(config))}",
    ]
    if training.distribution_strategy == "tpu":
        lines.append(f"step: {_step_words(config)}")
    return lines


def _cost_words(config: PipelineConfig) -> str:
    budget, count = config.budget, chips(config.tpu.accelerator_type) * config.tpu.slice_count
    amount = f"{count} {_plural('chip', count)} x {budget.max_hours:g} h"
    limit = budget.max_chip_hours
    if limit is not None and limit < count * budget.max_hours:
        amount = f"{limit:g} chip-hours (budget.max_chip_hours)"
    price = f"{budget.price_per_chip_hour:g} {budget.currency} a chip-hour ({budget.price_date})"
    cost = f"{worst_case_cost(config):,.2f} {budget.currency}"
    return f"at most {cost}, an estimate: {amount} x {price}"


def _budget_words(config: PipelineConfig) -> Iterator[str]:
    """Yield what ends a run early."""
    budget = config.budget
    yield f"at most {budget.max_preemptions} lost TPUs"
    yield f"{budget.max_stalled_attempts} of them in a row without a new checkpoint"
    yield f"{budget.max_failures} restarts of a killed trainer on one TPU"


def _step_words(config: PipelineConfig) -> str:
    """Return what the TPU compiler said of the training step, if it was ever asked."""
    figures = saved.find(config)
    if figures is None:
        return "not compiled with these settings yet: python -m tpu_compile_check estimates it"
    return (
        f"{figures.rows} rows take {figures.hbm_gib:.1f} GiB of a {figures.chip} chip's memory and "
        f"{figures.tflop:.3g} TFLOP, an estimate of the TPU compiler (libtpu {figures.libtpu})"
    )


def _data_words(config: PipelineConfig) -> Iterator[str]:
    """Yield what is said of the rows that the data job writes, and of where it runs."""
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


def _plural(word: str, count: int) -> str:
    return word if count == 1 else f"{word}s"
