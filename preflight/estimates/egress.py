"""Estimates the traffic between regions, and its price, if a TPU is not in the bucket's region."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from pipeline_config import FinetuningConfig, PipelineConfig, RentalConfig
from pipeline_config.accelerators import hosts
from pipeline_store import uris
from pipeline_store.layout import StoreLayout
from preflight.estimates.sizes import checkpoint_bytes, model_bytes, rows_by_size, size_text
from preflight.finetuning_settings import trial_count
from preflight.places import far_zones
from trained_models.decided_steps import RowCounts

# As in preflight.estimates.sizes: 800 bytes for a row of 128 tokens.
_RECORD_BYTES_PER_TOKEN = 800 / 128


@dataclass(frozen=True)
class Traffic:
    """Bytes that the TPU VMs of a run move, not counting replacements for lost TPUs."""

    read: int
    written: int
    left_out: str = ""
    """Note on traffic that is unknown and therefore not counted."""


def pretraining_traffic(
    config: PipelineConfig, rows: RowCounts | None, store: StoreLayout
) -> Traffic:
    """Return a run's traffic: each host reads all records once and the initial model.

    :param config: with its steps decided.
    :param rows: the rows to train on; None: not known yet, so they are estimated from the text.
    """
    if rows is None and config.corpus.partition is not None:
        rows = rows_by_size(config, config.corpus.partition, store)
    count = 0 if rows is None else rows.new + rows.replayed
    records = count * config.masking.max_seq_length * _RECORD_BYTES_PER_TOKEN
    workers = hosts(config.tpu.accelerator_type) * config.tpu.slice_count
    checkpoints = math.ceil(config.training.steps / config.training.checkpoint_interval)
    weights = model_bytes(config)
    return Traffic(
        read=round(workers * (records + weights)),
        written=checkpoints * checkpoint_bytes(config) + weights,
        left_out="" if rows else "records not counted, as their number is not known",
    )


def finetuning_traffic(config: FinetuningConfig, encoder: PipelineConfig | None) -> Traffic:
    """Return a run's traffic: each trial reads a model and writes a checkpoint per evaluation."""
    recipe = config.finetuning
    if encoder is None or recipe.source_run is not None:
        return Traffic(0, 0, "nothing is counted, as the models are not known or not trained")
    trials, count = trial_count(config), recipe.num_train_epochs * recipe.evaluations_per_epoch
    workers = hosts(config.tpu.accelerator_type)
    written = math.ceil(trials * count) * checkpoint_bytes(encoder)
    return Traffic(workers * trials * model_bytes(encoder), written, "examples not counted")


def egress_lines(
    config: RentalConfig,
    store: StoreLayout | None,
    traffic: Callable[[StoreLayout], Traffic],
    location: Callable[[str], str | None] = uris.location,
) -> Iterator[str]:
    """Yield a line on the traffic between regions and its cost, if TPUs may be in other regions.

    :param traffic: returns the traffic; called only in that case.
    :param location: returns the location of a URI's storage; None if it is unknown.
    """
    if store is None or not config.tpu.allow_other_regions:
        return
    place, budget = location(store.root), config.budget
    far = config.tpu.zones if place is None else far_zones(config.tpu.zones, place)
    if not far:
        return
    found = traffic(store)
    cost = (found.read + found.written) / 1e9 * budget.price_per_egress_gb
    notes = [found.left_out] if found.left_out else []
    yield (
        f"egress: {', '.join(far)} outside the bucket's region ({place or 'not known'}): a TPU "
        f"there reads about {size_text(found.read)} and writes {size_text(found.written)} across "
        f"regions x {budget.price_per_egress_gb:g} {budget.currency} a GB = {cost:,.2f} "
        f"{budget.currency}, an estimate, not in the cost above"
        f" ({'; '.join([*notes, 'a TPU that replaces a lost one reads all again'])})"
    )
