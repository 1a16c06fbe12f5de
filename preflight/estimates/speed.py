"""Estimates how long a training will take, from the last similar one or from its arithmetic.

Nothing here is measured on the machine that will train, so every display of a figure says so.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from dataclasses import dataclass, replace

from model_registry import versions
from model_registry.production import production
from pipeline_config import ConfigError, PipelineConfig, parse_config
from pipeline_store import uris
from pipeline_store.formats import (
    CheckpointManifest,
    FormatError,
    Ledger,
    LedgerEntry,
    ModelVersion,
    RunPlan,
    TrainingResult,
)
from pipeline_store.layout import RunLayout, StoreLayout
from preflight.compiled import saved
from preflight.compiled.slices import replicas
from trained_models.architectures.architecture import step_flops
from trained_models.flops import peak_flops
from trained_models.head_phase import STEP_SHARE, head_steps
from trained_models.phases import Phase, phases

ASSUMED_UTILIZATION = 0.3
"""Share of the chips' peak that a training is assumed to reach if no similar one has run.

Published shares are 0.21 to 0.46, for large transformers (PaLM, arXiv 2204.02311, table 3).
"""

_LOOKED_AT = 20
_SETTINGS = (
    *saved.SETTINGS,
    "masking.dynamic",
    "training.distribution_strategy",
    "training.global_batch_size",
    "training.extra_steps_fraction",
    "evaluation.rows_per_checkpoint",
    "tpu.accelerator_type",
    "tpu.slice_count",
)
_EXTRA_SETTINGS = (
    "masking.extra_max_seq_length",
    "masking.extra_max_predictions_per_seq",
    "training.extra_global_batch_size",
)


@dataclass(frozen=True)
class Speed:
    """The estimated time for which a run needs its TPU, and the basis of the estimate."""

    training_seconds: float
    other_seconds: float
    basis: str

    @property
    def hours(self) -> float:
        """Return the total hours of TPU."""
        return (self.training_seconds + self.other_seconds) / 3600


def find_speed(config: PipelineConfig, store: StoreLayout | None) -> Speed | None:
    """Return how long the TPU will be needed; None if there is no basis for an estimate.

    The basis is the newest run that made a model of this lineage, else of any lineage, with the
    same settings as far as they decide the time of a step; else the FLOPs of a step at the assumed
    share of the chips' peak.

    :param store: None: only the FLOPs are used.
    """
    found = None if store is None else _as_run_before(config, store)
    found = found or _by_arithmetic(config)
    if found is None or not (steps := new_head_steps(config, store)):
        return found
    head = found.training_seconds / config.training.steps * STEP_SHARE * steps
    basis = (
        f"{found.basis}; {steps:,} steps of a new head alone are counted as {STEP_SHARE:g} of a "
        "step each"
    )
    return replace(found, training_seconds=found.training_seconds + head, basis=basis)


def new_head_steps(config: PipelineConfig, store: StoreLayout | None) -> int:
    """Return the number of steps in which a run trains only a new masked-LM head.

    :param config: with as many steps as the run will have.
    :param store: searched for the lineage's model in use; None: it has none.
    """
    if not config.model.init_encoder_only:
        return 0
    lineage = None if store is None else store.lineage(config.model.lineage_id)
    in_use = None if lineage is None else production(lineage)
    return 0 if in_use is not None and in_use.train_steps_total else head_steps(config)


def _as_run_before(config: PipelineConfig, store: StoreLayout) -> Speed | None:
    own = config.model.lineage_id
    for lineage_ids in ([own], versions.lineage_ids(store)):
        for run in _finished_runs(lineage_ids, store):
            if found := _as_last_time(config, run):
                return found
    return None


def _finished_runs(lineage_ids: list[str], store: StoreLayout) -> Iterator[RunLayout]:
    """Yield the runs of the newest model versions of the given lineages, newest first."""
    files = [file for name in lineage_ids for file in versions.list_commits(store.lineage(name))]
    newest = sorted(files, key=lambda file: file.modified, reverse=True)
    for file in newest[:_LOOKED_AT]:
        try:
            version = ModelVersion.load(file.uri)
        except (OSError, FormatError):
            continue
        yield store.run(version.run_key)


def _as_last_time(config: PipelineConfig, run: RunLayout) -> Speed | None:
    """Return the speed of a run, if its steps were like those of the configuration."""
    try:
        before = parse_config(uris.read(run.config), run.config)
        checkpoint = _newest_checkpoint(run)
        if checkpoint is None or not _alike(config, before):
            return None
        other, of_what = _other_seconds(run, checkpoint.seconds + _head_seconds(run))
    except (OSError, FormatError, ConfigError):
        # A run whose files are gone or no longer readable tells nothing.
        return None
    step = checkpoint.seconds / checkpoint.step
    return Speed(
        training_seconds=step * config.training.steps,
        other_seconds=other,
        basis=(
            f"run {run.root.rpartition('/')[2]} of {checkpoint.created:%Y-%m-%d} took {step:.3g} s "
            f"a step on the same settings{of_what}"
        ),
    )


def _alike(config: PipelineConfig, before: PipelineConfig) -> bool:
    names = _SETTINGS + (_EXTRA_SETTINGS if config.training.extra_steps_fraction else ())
    return all(operator.attrgetter(n)(config) == operator.attrgetter(n)(before) for n in names)


def _newest_checkpoint(run: RunLayout) -> CheckpointManifest | None:
    # The result may be an earlier checkpoint, the best; the newest has the time of all steps.
    found = uris.list_files(run.training.checkpoints)
    checkpoint = CheckpointManifest.load(max(found)) if found else None
    return checkpoint if checkpoint is not None and checkpoint.step else None


def _head_seconds(run: RunLayout) -> float:
    plan = RunPlan.load_or_none(run.plan)
    head = (
        None if plan is None else TrainingResult.load_or_none(run.head(plan.parent_version).result)
    )
    return 0.0 if head is None else head.seconds


def _other_seconds(run: RunLayout, training_seconds: float) -> tuple[float, str]:
    """Return how long a run needed its TPU besides the training, and what for, in words."""
    entries = [entry for entry in _entries(run) if entry.billed_seconds]
    if len(entries) == 1 and entries[0].billed_seconds > training_seconds:
        other = entries[0].billed_seconds - training_seconds
        return other, f", and {other:.0f} s for start, evaluation and end"
    # With lost TPUs or several reservations, the time lost with them cannot be separated.
    starts = [s for e in entries if (s := e.ready_to_first_step_seconds) is not None]
    if starts:
        return max(
            starts
        ), f", and {max(starts):.0f} s until its first step; evaluation not counted"
    return 0.0, "; start and evaluation not counted"


def _entries(run: RunLayout) -> Iterator[LedgerEntry]:
    generation = 1
    while uris.exists(run.reservation(generation).record):
        ledger = Ledger.load_or_none(run.reservation(generation).ledger)
        yield from ledger.entries if ledger else ()
        generation += 1


def _by_arithmetic(config: PipelineConfig) -> Speed | None:
    """Return the time for the FLOPs of all steps at the assumed share of the chips' peak."""
    peak = peak_flops(config.tpu.accelerator_type)
    if config.training.distribution_strategy != "tpu" or peak is None:
        return None
    counted = [(phase, *_flops(config, phase)) for phase in phases(config)]
    total = sum(flops * (phase.end_step - phase.first_step) for phase, flops, _ in counted)
    sources = " and ".join(dict.fromkeys(source for *_, source in counted))
    return Speed(
        training_seconds=total / (peak * ASSUMED_UTILIZATION),
        other_seconds=0.0,
        basis=(
            f"no run like it is known; {counted[0][1] / 1e12:.3g} TFLOP a step, {sources}, at an "
            f"assumed {ASSUMED_UTILIZATION:.0%} of the peak of {config.tpu.accelerator_type}, "
            f"{peak / 1e12:,.0f} TFLOP/s (published trainings of transformers reach 21 to 46 %); "
            "start and evaluation not counted"
        ),
    )


def _flops(config: PipelineConfig, phase: Phase) -> tuple[float, str]:
    """Return the FLOPs of a step over all replicas, and their source in words."""
    masking = {
        "max_seq_length": phase.max_seq_length,
        "max_predictions_per_seq": phase.max_predictions_per_seq,
    }
    training = {"global_batch_size": phase.global_batch_size}
    shaped = config.model_copy(
        update={
            "masking": config.masking.model_copy(update=masking),
            "training": config.training.model_copy(update=training),
        }
    )
    if figures := saved.find(shaped):
        by = f"as the TPU compiler counts (libtpu {figures.libtpu})"
        return figures.tflop * 1e12 * replicas(config), by
    return float(step_flops(config, phase)), "counted from the settings"
