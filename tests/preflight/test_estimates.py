"""What is said of time and cost before a run begins, and what it rests on."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from model_registry import registry
from pipeline_config import PipelineConfig, load_preset, with_overrides
from pipeline_store import uris
from pipeline_store.formats import (
    CheckpointManifest,
    Ledger,
    LedgerEntry,
    ModelVersion,
    PartitionManifest,
    Reservation,
    RunEstimate,
)
from pipeline_store.layout import StoreLayout
from preflight.compiled import saved
from preflight.estimates import passes
from preflight.estimates.egress import Traffic, egress_lines
from preflight.estimates.estimates import estimate, write_estimate
from preflight.estimates.sizes import checkpoint_bytes, model_bytes, size_text
from preflight.estimates.speed import ASSUMED_UTILIZATION
from tests.model_registry.runs import NOW, FinishedRun
from trained_models import decided_steps
from trained_models.decided_steps import RowCounts
from trained_models.flops import peak_flops

SMOKE, BERT = load_preset("smoke"), load_preset("bert_base_v5e")


def published(store: str, name: str = "1", **arguments: Any) -> FinishedRun:
    """Return a promoted run of lineage ``default``: 400 steps of the smoke preset in 60 s."""
    run = FinishedRun(store, name, **arguments)
    registry.publish(run.store, run.run)
    registry.promote(run.lineage, run.version_id, expected_baseline=run.parent, reason="better")
    return run


def bill(run: FinishedRun, *billed_seconds: float, generation: int = 1) -> None:
    """Write what the run's TPUs of one reservation were rented for."""
    terms: dict[str, Any] = {"price_per_chip_hour": 1.2, "currency": "USD", "price_date": "2026-01"}
    place = run.run.reservation(generation)
    Reservation(
        run_key=run.key,
        generation=generation,
        project_id="p",
        zones=["us-central1-a"],
        owner="us",
        dag_id="dag",
        accelerator_type="v5litepod-1",
        bundle_sha256="0",
        created=NOW,
        expires_at=NOW + timedelta(hours=1),
        delete_grace_seconds=5.0,
        **terms,
    ).write(place.record)
    entries = [
        LedgerEntry(
            generation=generation,
            attempt=number,
            zone="us-central1-a",
            accelerator_type="v5litepod-1",
            chips=1,
            created=NOW,
            ready=NOW,
            gone=NOW,
            outcome="released",
            billed_seconds=seconds,
            chip_seconds=seconds,
            cost=0.0,
            ready_to_first_step_seconds=20.0 if seconds else None,
        )
        for number, seconds in enumerate(billed_seconds, start=1)
    ]
    Ledger(run_key=run.key, generation=generation, entries=entries, **terms).write(place.ledger)


def of(run: FinishedRun, base: PipelineConfig = SMOKE, **overrides: Any) -> RunEstimate:
    named = {name.replace("__", "."): value for name, value in overrides.items()}
    return estimate(with_overrides(base, named), run.store)


@pytest.fixture
def run(tmp_path: Any) -> FinishedRun:
    return published(str(tmp_path / "store"))


def test_as_long_as_the_last_run_that_was_like_it(run: FinishedRun) -> None:
    bill(run, 150.0)
    found = of(run, training__train_steps=800, budget__price_per_chip_hour=60.0)
    # 0.15 s a step, and the 90 s in which the TPU did not train.
    assert found.hours == pytest.approx((800 * 0.15 + 90) / 3600)
    assert found.chip_hours == found.hours
    assert found.cost == pytest.approx(3.5)
    assert found.basis == (
        f"run {run.key} of 2026-01-31 took 0.15 s a step on the same settings, and 90 s for start, "
        "evaluation and end"
    )
    assert found.lines[0] == "estimate: 3.5 min of TPU, 0.0583 chip-hours, 3.50 USD"
    assert found.lines[1] == f"by: {found.basis}"


@pytest.mark.parametrize(
    ("billed", "hours", "said"),
    [
        ((), 60, "; start and evaluation not counted"),
        # Lost TPUs are not foreseen; what they cost cannot be told from the rest.
        ((30.0, 150.0), 80, ", and 20 s until its first step; evaluation not counted"),
        # One that was refused is not billed.
        ((0.0, 150.0), 150, ", and 90 s for start, evaluation and end"),
    ],
)
def test_what_the_tpu_was_needed_for_beside_the_training(
    run: FinishedRun, billed: tuple[float, ...], hours: float, said: str
) -> None:
    if billed:
        bill(run, *billed)
    found = of(run)
    assert found.hours == pytest.approx(hours / 3600)
    assert found.basis.endswith(said)


def test_reservations_of_one_run_are_seen_together(run: FinishedRun) -> None:
    bill(run, 150.0)
    bill(run, 200.0, generation=2)
    assert of(run).hours == pytest.approx(80 / 3600)


@pytest.mark.parametrize(
    "other",
    [
        {"training__global_batch_size": 64},
        {"model__num_hidden_layers": 3},
        {"masking__max_seq_length": 64},
        {"tpu__accelerator_type": "v5litepod-4"},
        {"training__mixed_precision_dtype": "bfloat16"},
        {"evaluation__rows_per_checkpoint": 100},
        {"masking__dynamic": False},
    ],
)
def test_a_run_with_other_steps_tells_nothing(run: FinishedRun, other: dict[str, Any]) -> None:
    found = of(run, **other)
    assert (found.hours, found.chip_hours, found.cost) == (None, None, None)
    assert found.basis.startswith("no basis: ")
    assert found.lines[0] == "estimate: not known"
    assert found.worst_case_cost is not None
    assert found.worst_case_cost > 0


def test_steps_on_long_rows_must_be_as_they_were_too(run: FinishedRun) -> None:
    lengths: dict[str, Any] = {"masking__max_seq_length": 64, "masking__extra_max_seq_length": 128}
    both = lengths | {"training__extra_steps_fraction": 0.5}
    named = {name.replace("__", "."): value for name, value in both.items()}
    uris.write(run.run.config, with_overrides(SMOKE, named).to_bytes())
    assert of(run, **both).hours == pytest.approx(60 / 3600)
    assert of(run, **both, training__extra_global_batch_size=32).hours is None
    assert of(run, **both | {"training__extra_steps_fraction": 0.4}).hours is None


def test_what_does_not_decide_a_steps_time_may_differ(run: FinishedRun) -> None:
    found = of(run, optimizer__learning_rate=1e-5, training__checkpoint_interval=100)
    assert found.hours == pytest.approx(60 / 3600)


def test_the_newest_run_counts_and_another_lineage_will_do(run: FinishedRun) -> None:
    newer = published(run.store.root, "2", parent=run.version_id)
    later = newer.run.training.checkpoint(400)
    slower = {"seconds": 120.0, "created": datetime(2026, 2, 1, tzinfo=UTC)}
    CheckpointManifest.load(later).model_copy(update=slower).write(later)
    assert of(run).basis.startswith(f"run {newer.key} of 2026-02-01 took 0.3 s a step")
    assert of(run, model__lineage_id="new").hours == pytest.approx(120 / 3600)


def test_all_steps_count_where_the_result_is_an_earlier_checkpoint(run: FinishedRun) -> None:
    last = run.run.training.checkpoint(400)
    longer = {"step": 600, "seconds": 120.0}
    CheckpointManifest.load(last).model_copy(update=longer).write(run.run.training.checkpoint(600))
    assert of(run).hours == pytest.approx(400 * 0.2 / 3600)


def test_a_run_whose_files_are_gone_is_passed_over(run: FinishedRun) -> None:
    older = published(run.store.root, "2", parent=run.version_id)
    for damage in (older.run.config, run.run.training.checkpoint(400)):
        uris.write(damage, b"{")
    assert of(run).hours is None
    uris.delete(run.run.training.checkpoint(400))
    assert of(run).hours is None
    uris.write(older.lineage.model(older.version_id), b"{")
    assert of(run).hours is None


def test_arithmetic_where_no_run_like_it_is_known(run: FinishedRun) -> None:
    found = of(run, BERT)
    figures, peak = saved.find(BERT), peak_flops("v5litepod-8")
    assert figures is not None
    assert peak is not None
    seconds = 20000 * figures.tflop * 1e12 * 8 / (peak * ASSUMED_UTILIZATION)
    assert found.hours == pytest.approx(seconds / 3600)
    assert found.chip_hours == pytest.approx(8 * seconds / 3600)
    assert found.cost == pytest.approx(8 * seconds / 3600 * 1.2)
    assert found.worst_case_cost == pytest.approx(230.4)
    assert "as the TPU compiler counts (libtpu" in found.basis
    assert "at an assumed 30% of the peak of v5litepod-8, 1,576 TFLOP/s" in found.basis


def test_a_step_that_was_never_compiled_is_counted_from_the_settings(run: FinishedRun) -> None:
    known, counted = of(run, BERT), of(run, BERT, model__num_hidden_layers=11)
    assert "counted from the settings" in counted.basis
    assert known.hours is not None
    assert counted.hours is not None
    # One layer of twelve less, and the head as before.
    assert 0.85 < counted.hours / known.hours < 1.0


def test_steps_on_long_rows_are_counted_with_their_own_shape(run: FinishedRun) -> None:
    long_rows = {
        "masking__extra_max_seq_length": 512,
        "masking__extra_max_predictions_per_seq": 76,
        "training__extra_steps_fraction": 0.1,
        "training__extra_global_batch_size": 512,
    }
    found, short, long = of(run, BERT, **long_rows), of(run, BERT), load_preset("bert_base_v5e_512")
    assert found.rows == 18000 * 2048 + 2000 * 512
    assert found.tokens == 18000 * 2048 * 128 + 2000 * 512 * 512
    only_long = estimate(with_overrides(long, {"training.train_steps": 20000}))
    assert found.hours is not None
    assert short.hours is not None
    assert only_long.hours is not None
    assert found.hours == pytest.approx(0.9 * short.hours + 0.1 * only_long.hours)
    [line] = [line for line in found.lines if line.startswith("training: ")]
    assert "18,000 steps of 2,048 rows" in line
    assert "2,000 steps of 512 rows" in line


@pytest.mark.parametrize("family", ["v7x-8", "v5e-8"])
def test_chips_of_which_nothing_is_known(run: FinishedRun, family: str) -> None:
    config = BERT.model_copy(
        update={"tpu": BERT.tpu.model_copy(update={"accelerator_type": family})}
    )
    assert estimate(config, run.store).basis.startswith("no basis: ")


def test_without_a_store_nothing_of_earlier_runs_is_known() -> None:
    assert estimate(SMOKE).hours is None
    assert estimate(BERT).hours is not None


def test_budgets_under_the_estimate_are_named(run: FinishedRun) -> None:
    bill(run, 150.0)
    limits: dict[str, Any] = {"budget__max_hours": 0.1, "budget__max_chip_hours": 0.05}
    fast: dict[str, Any] = {"tpu__queue_timeout_seconds": 60}
    lines = of(run, training__train_steps=4000, **fast, **limits).lines
    hours, chip_hours = [line for line in lines if line.startswith("WARNING: ")]
    assert "budget.max_hours: 0.1 h are less than the estimated 11.5 min" in hours
    assert "budget.max_chip_hours: 0.05 are less than the estimated 0.192" in chip_hours
    assert not any(line.startswith("WARNING") for line in of(run).lines)


def test_how_often_the_rows_of_a_prepared_partition_are_seen(run: FinishedRun) -> None:
    lines = of(run, corpus__partition="day-1").lines
    assert "rows: 5,000 of 1,234 documents in day-1, which the steps go over 2.56 times" in lines
    assert not any(line.startswith("WARNING") for line in lines)
    [warning] = of(run, corpus__partition="day-1", training__global_batch_size=8000).lines[-1:]
    assert warning.startswith("WARNING: training.global_batch_size: 8,000 rows a step, but ")
    # Prepared with other settings, or never.
    unknown = "rows: not known before partition day-1 is prepared with these settings"
    assert unknown in of(run, corpus__partition="day-1", masking__dynamic=False).lines
    assert unknown.replace("day-1", "day-2") in of(run, corpus__partition="day-2").lines
    assert not any(line.startswith("rows: ") for line in of(run).lines)


def test_what_crosses_regions_is_told_with_its_price(run: FinishedRun) -> None:
    far: dict[str, Any] = {"tpu__zones": ["us-central1-a", "us-west4-a"]}
    assert not any(line.startswith("egress") for line in of(run, **far).lines)
    far |= {"tpu__allow_other_regions": True, "budget__price_per_egress_gb": 100.0}
    [line] = [
        line
        for line in of(run, corpus__partition="day-1", **far).lines
        if line.startswith("egress: ")
    ]
    config = with_overrides(SMOKE, {})
    # Its 5,000 rows of 128 tokens, the model it starts from; a checkpoint each interval, a model.
    read = 5000 * 800 + model_bytes(config)
    interval = config.training.checkpoint_interval
    checkpoints = -(-config.training.steps // interval)
    written = checkpoints * checkpoint_bytes(config) + model_bytes(config)
    assert f"reads about {size_text(read)} and writes {size_text(written)} across" in line
    assert f"x 100 USD a GB = {(read + written) / 1e7:.2f} USD, an estimate" in line
    assert "a TPU that replaces a lost one reads all again" in line


@pytest.mark.parametrize(("place", "zones"), [("US", None), ("US-CENTRAL1", "us-west4-a")])
def test_only_zones_outside_the_buckets_region_have_egress(
    run: FinishedRun, place: str, zones: str | None
) -> None:
    tpu = {"tpu.zones": ["us-central1-a", "us-west4-a"], "tpu.allow_other_regions": True}
    config = with_overrides(SMOKE, tpu)
    lines = list(egress_lines(config, run.store, lambda _: Traffic(1, 1), lambda _: place))
    assert lines == [] if zones is None else lines[0].startswith(f"egress: {zones} outside the ")


def test_padding_of_a_prepared_partition_is_warned_of(run: FinishedRun) -> None:
    manifest = PartitionManifest.load(run.manifest_uri)
    tokens = {split: rows * 40 for split, rows in manifest.records.items()}
    manifest.model_copy(update={"tokens": tokens}).write(run.manifest_uri)
    [warning] = of(run, corpus__partition="day-1").lines[-1:]
    assert warning.startswith("WARNING: day-1: row fill 0.31: of rows of 128 tokens 69% is padding")


@pytest.mark.parametrize(
    ("dynamic", "most", "remedy"),
    [(True, 40, "steps or fewer, or train"), (False, 5, "steps or fewer, set masking.dynamic")],
)
def test_more_passes_than_teach_anything_are_warned_of(
    dynamic: bool, most: int, remedy: str
) -> None:
    named = {"masking.dynamic": dynamic, "training.train_steps": 20_000, "training.max_passes": 0}
    config = with_overrides(BERT, named)
    enough = 20_000 * config.training.global_batch_size // most
    assert decided_steps.passes(config, RowCounts(enough)) == most
    assert not list(passes.warnings(config, RowCounts(enough)))
    [warning] = passes.warnings(config, RowCounts(enough - 1))
    assert warning.startswith("WARNING: training.train_steps: 20,000 steps go over ")
    assert f"Use 19,999 {remedy}" in warning


def test_a_store_that_cannot_be_read_only_makes_it_know_less(
    run: FinishedRun, caplog: pytest.LogCaptureFixture
) -> None:
    config = with_overrides(BERT, {"corpus.partition": "day-1"})
    assert estimate(config, StoreLayout("s3://bucket/store")) == estimate(config)
    assert "The estimate was made without the store: ValueError" in caplog.text
    uris.write(run.manifest_uri, b"{")
    assert estimate(config, run.store) == estimate(config)
    assert "FormatError" in caplog.text


def test_the_estimate_of_a_run_is_written_once(any_store: str) -> None:
    run = StoreLayout(any_store).run("0a1b2c3d4e5f")
    first = estimate(BERT, StoreLayout(any_store))
    write_estimate(run, first)
    write_estimate(run, first.model_copy(update={"basis": "another"}))
    assert RunEstimate.load(run.estimate) == first


def test_a_version_of_the_lineage_in_a_bucket(any_store: str) -> None:
    run = published(any_store)
    bill(run, 150.0)
    assert ModelVersion.load(run.lineage.model(run.version_id)).run_key == run.key
    assert of(run).hours == pytest.approx(150 / 3600)
