"""Every rule that joins settings refuses what it is for, and says what to do."""

from __future__ import annotations

from typing import Any

import pytest

from pipeline_config import ConfigError, PipelineConfig, load_preset, preset_names, with_overrides
from pipeline_config.accelerators import chips, hosts
from pipeline_config.rental_rules import RENTAL_RULES, worst_case_cost
from pipeline_config.rules import RULES, violations
from tpu_emulator.catalog import ACCELERATOR_TYPES

BASE = load_preset("smoke")
T5 = {
    "model.architecture": "t5",
    "model.hidden_act": "relu",
    "vocabulary.kind": "t5",
    "vocabulary.do_lower_case": False,
    "masking.unit": "sentinel",
    "masking.max_predictions_per_seq": 26,
    "promotion.export_formats": ["hugging_face"],
}

# Rule: a violation of it alone, the setting that the line names first, and words it must contain.
BROKEN: dict[str, tuple[dict[str, Any], str, list[str]]] = {
    "_probes_fit_the_slice": (
        {
            "promotion.probe_tasks": ["sst"],
            "tpu.accelerator_type": "v5litepod-64",
            "training.distribution_strategy": "tpu",
            "training.global_batch_size": 64,
            "budget.max_cost": 10_000.0,
        },
        "promotion.probe_tasks",
        ["batches of 32 examples", "64 cores of v5litepod-64"],
    ),
    "_probes_are_named_once": (
        {"promotion.probe_tasks": ["sst", "cola", "sst"]},
        "promotion.probe_tasks",
        ["sst"],
    ),
    "_partition_is_an_id": (
        {"corpus.partition": "2026/01"},
        "corpus.partition",
        ["'2026/01'", "such as 2026-01-31"],
    ),
    "_documents_are_in_the_format": (
        {"corpus.input_format": "jsonl", "corpus.document": "file"},
        "corpus.document",
        ["file", "corpus.input_format=jsonl", "use record, or auto"],
    ),
    "_groups_are_of_records": (
        {"corpus.split_by": "group"},
        "corpus.group_field",
        ["corpus.split_by=group", "name it"],
    ),
    "_units_need_signatures": (
        {"corpus.split_by": "file", "corpus.duplicates": "keep"},
        "corpus.split_by",
        ["file", "corpus.duplicates=keep"],
    ),
    "_rows_fit_positions": (
        {"masking.max_seq_length": 256, "masking.max_predictions_per_seq": 38},
        "masking.max_seq_length",
        ["256", "model.max_position_embeddings=128"],
    ),
    "_predictions_fit_rows": (
        {"masking.max_predictions_per_seq": 19 - 1},
        "masking.max_predictions_per_seq",
        ["18", "need 19"],
    ),
    "_rate_falls_in_time": (
        {"optimizer.learning_rate_schedule": "constant_then_linear"},
        "optimizer.decay_steps",
        ["0", "at least 1"],
    ),
    "_long_rows_come_last": (
        {"training.extra_steps_fraction": 0.1},
        "training.extra_steps_fraction",
        ["0.1", "masking.extra_max_seq_length"],
    ),
    "_replay_leaves_new_rows": (
        {"training.replay_fraction": 1.0},
        "training.replay_fraction",
        ["1.0", "no row of the new partition"],
    ),
    "_unseen_is_trained_on_once": (
        {"training.train_again": True, "training.partitions": "unseen"},
        "training.train_again",
        ["training.partitions=unseen", "set one"],
    ),
    "_general_text_is_another_partition": (
        {"evaluation.general_partition": "general", "corpus.partition": "general"},
        "evaluation.general_partition",
        ["general is also corpus.partition", "no run trains on"],
    ),
    "_replicas_get_whole_parts": (
        {"training.gradient_accumulation_steps": 3},
        "training.gradient_accumulation_steps",
        ["3 parts", "training.global_batch_size=32"],
    ),
    "_frozen_layers_leave_some": (
        {"training.frozen_layers": 3},
        "training.frozen_layers",
        ["3", "model.num_hidden_layers=2"],
    ),
    "_scores_are_made": (
        {"training.keep_best": True},
        "training.keep_best",
        ["evaluation.rows_per_checkpoint"],
    ),
    "_short_residuals_need_short_arithmetic": (
        {"training.residual_dtype": "bfloat16"},
        "training.residual_dtype",
        ["training.mixed_precision_dtype"],
    ),
    "_extra_rows_differ": (
        {"masking.extra_max_seq_length": 128},
        "masking.extra_max_seq_length",
        ["128", "another length"],
    ),
    "_pairs_need_two_segment_types": (
        {"masking.packing": "segment_pair", "model.type_vocab_size": 1},
        "masking.packing",
        ["segment_pair", "type_vocab_size is 1"],
    ),
    "_dynamic_rows_are_written_once": (
        {"masking.dynamic": True, "masking.dupe_factor": 2},
        "masking.dupe_factor",
        ["2 copies", "set it to 1"],
    ),
    "_domain_words_need_a_vocabulary": (
        {"vocabulary.domain_words": 10},
        "vocabulary.domain_words",
        ["10 words", "vocabulary.uri"],
    ),
    "_dataflow_is_complete": (
        {
            "beam.runner": "DataflowRunner",
            "beam.region": "us-central1",
            "beam.temp_location": "gs://bucket/temp",
        },
        "beam.sdk_container_image",
        ["DataflowRunner"],
    ),
    "_one_region": (
        {
            "beam.runner": "DataflowRunner",
            "beam.region": "europe-west4",
            "beam.temp_location": "gs://bucket/temp",
            "beam.sdk_container_image": f"europe-west4-docker.pkg.dev/p/r/beam@sha256:{0:064}",
        },
        "beam.region",
        ["europe-west4", "us-central1-a"],
    ),
    "_heads_divide_width": (
        {"model.num_attention_heads": 3},
        "model.num_attention_heads",
        ["3", "model.hidden_size=128"],
    ),
    "_vocabulary_fits_model": (
        {"vocabulary.size": 8001},
        "vocabulary.size",
        ["8001", "model.vocab_size=8000"],
    ),
    "_loop_divides_intervals": (
        {"training.checkpoint_interval": 55},
        "training.checkpoint_interval",
        ["55", "training.steps_per_loop=10"],
    ),
    "_auto_has_a_limit": (
        {"training.train_steps": "auto", "training.max_passes": 0},
        "training.max_passes",
        ["0 lifts the limit", "leave it empty"],
    ),
    "_rate_schedule_fits": (
        {"optimizer.warmup_steps": 400},
        "optimizer.warmup_steps",
        ["400", "training.train_steps=400"],
    ),
    "_spot_saves_in_time": (
        {"tpu.provisioning_model": "spot", "training.checkpoint_interval": 400},
        "training.checkpoint_interval",
        ["spot", "step 400 of 400"],
    ),
    "_strategy_fits_batch": (
        {
            "training.distribution_strategy": "tpu",
            "tpu.accelerator_type": "v5litepod-8",
            "training.global_batch_size": 36,
        },
        "training.global_batch_size",
        ["36", "8 cores of v5litepod-8"],
    ),
    "_silence_is_longer_than_a_beat": (
        {"tpu.heartbeat_interval_seconds": 10.0, "tpu.heartbeat_timeout_seconds": 29.0},
        "tpu.heartbeat_timeout_seconds",
        ["29.0", "tpu.heartbeat_interval_seconds=10.0"],
    ),
    "_lease_outlasts_a_look": (
        {"tpu.lease_timeout_seconds": 29.0, "tpu.poll_interval": 10.0},
        "tpu.lease_timeout_seconds",
        ["29.0", "tpu.poll_interval=10.0"],
    ),
    "_zones_are_different": (
        {"tpu.zones": ["us-central1-a", "us-west4-a", "us-central1-a"]},
        "tpu.zones",
        ["us-central1-a is listed more than once"],
    ),
    "_disks_are_in_the_zone": (
        {"tpu.data_disks": ["projects/p/zones/us-west4-a/disks/corpus"]},
        "tpu.data_disks",
        ["us-west4-a", "us-central1-a"],
    ),
    "_reservation_is_asked_for": (
        {"tpu.reservation_name": "bought"},
        "tpu.reservation_name",
        ["bought", "tpu.provisioning_model=on-demand"],
    ),
    "_multislice_is_queued": (
        {"tpu.slice_count": 2, "tpu.api": "nodes"},
        "tpu.slice_count",
        ["2 slices", "tpu.api=nodes"],
    ),
    "_waiting_leaves_time_to_train": (
        {"tpu.queue_timeout_seconds": 3480},
        "tpu.queue_timeout_seconds",
        ["3480", "tpu.boot_timeout_seconds=120", "budget.max_hours=1.0", "3600 s"],
    ),
    "_lineage_outwaits_an_approval": (
        {"promotion.require_approval": True, "promotion.approval_timeout_hours": 168.0},
        "promotion.approval_timeout_hours",
        ["168 h", "budget.max_lineage_wait_hours=168"],
    ),
    "_tokens_are_of_the_architecture": (
        {"vocabulary.kind": "bpe", "vocabulary.do_lower_case": False},
        "vocabulary.kind",
        ["bpe", "model.architecture=bert", "wordpiece or sentencepiece"],
    ),
    "_spans_are_of_the_architecture": (
        {"masking.unit": "sentinel", "masking.max_predictions_per_seq": 26},
        "masking.unit",
        ["sentinel", "model.architecture=bert", "token, word or span"],
    ),
    "_activations_are_of_the_architecture": (
        {"model.hidden_act": "relu"},
        "model.hidden_act",
        ["relu", "model.architecture=bert", "gelu or gelu_new"],
    ),
    "_decoders_have_what_they_can": (
        T5 | {"training.frozen_layers": 1},
        "training.frozen_layers",
        ["1 with model.architecture=t5", "Set it to 0"],
    ),
    "_cost_stays_in_budget": (
        {"budget.max_cost": 1.0, "budget.max_hours": 2.0},
        "budget.max_cost",
        ["2.0 hours", "v5litepod-1", "1.2 USD", "2.40", "limit of 1.00", "budget.max_hours"],
    ),
}


@pytest.mark.parametrize("rule", [*RULES, *RENTAL_RULES], ids=lambda rule: rule.__name__)
def test_each_rule_refuses_its_violation(rule: Any) -> None:
    overrides, setting, words = BROKEN[rule.__name__]
    with pytest.raises(ConfigError) as caught:
        with_overrides(BASE, overrides)
    [line] = caught.value.violations
    assert line.startswith(f"{setting}: ")
    assert all(word in line for word in words), line
    assert "\n" not in line


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ({"masking.max_predictions_per_seq": 127}, ["127 predictions", "126 besides"]),
        ({"optimizer.end_learning_rate": 0.1}, ["0.1", "optimizer.learning_rate=0.002"]),
        (
            {"optimizer.end_learning_rate": 1e-4, "optimizer.update_learning_rate": 1e-5},
            ["0.0001", "optimizer.update_learning_rate=1e-05"],
        ),
        ({"evaluation.general_partition": "A/B"}, ["'A/B' is not a partition id"]),
        (
            {"evaluation.pattern": "general"},
            ["evaluation.pattern: ", "evaluation.rows_per_checkpoint is 0", "leave the pattern"],
        ),
        (
            T5 | {"masking.max_predictions_per_seq": 25},
            ["masking.max_predictions_per_seq: 25 would silently cut", "rows of 128 need 26"],
        ),
        (
            T5
            | {
                "masking.max_seq_length": 2048,
                "model.max_position_embeddings": 2048,
                "masking.max_predictions_per_seq": 500,
            },
            ["masking.max_seq_length: rows of 2048 tokens have 102 spans", "100 sentinels"],
        ),
        (T5 | {"corpus.input_format": "tfrecord"}, ["corpus.input_format: ", "give text"]),
        (T5 | {"optimizer.type": "amos"}, ["optimizer.type: amos", "adamw or lamb"]),
        (
            T5 | {"promotion.export_formats": ["saved_model"]},
            ["promotion.export_formats: saved_model", "only hugging_face"],
        ),
        (
            T5 | {"masking.packing": "segment_pair"},
            ["masking.packing: segment_pair", "model.architecture=t5"],
        ),
        ({"model.attention_head_size": 64}, ["model.attention_head_size: 64 is of t5 alone"]),
        ({"tpu.provisioning_model": "reserved"}, ["reservation_name: empty", "tpu.api=nodes"]),
        (
            {
                "training.distribution_strategy": "tpu",
                "tpu.accelerator_type": "v5litepod-8",
                "evaluation.global_batch_size": 60,
            },
            ["evaluation.global_batch_size: 60"],
        ),
    ],
)
def test_second_halves_of_rules(overrides: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        with_overrides(BASE, overrides)
    [line] = caught.value.violations
    assert all(word in line for word in words), line


@pytest.mark.parametrize(
    "overrides",
    [
        {"corpus.partition": "2026-01-31"},
        T5,
        T5 | {"model.num_attention_heads": 6, "model.attention_head_size": 64},
        {"masking.max_predictions_per_seq": 126},
        {"masking.max_predictions_per_seq": 19},
        {"optimizer.warmup_steps": 399},
        {"optimizer.warmup_steps": 0},
        {"training.checkpoint_interval": 400},
        {"tpu.provisioning_model": "spot", "training.checkpoint_interval": 390},
        {"tpu.heartbeat_interval_seconds": 10.0, "tpu.heartbeat_timeout_seconds": 30.0},
        {"tpu.lease_timeout_seconds": 30.0, "tpu.poll_interval": 10.0},
        {"tpu.queue_timeout_seconds": 3479},
        {"promotion.require_approval": True, "promotion.approval_timeout_hours": 167.0},
        {"promotion.approval_timeout_hours": 700.0},
        {"evaluation.general_partition": "general"},
        {"tpu.provisioning_model": "reserved", "tpu.reservation_name": "bought"},
        {"tpu.provisioning_model": "reserved", "tpu.api": "nodes"},
        {"training.train_again": True},
        {"budget.max_cost": 1.2, "budget.max_hours": 1.0},
        {"tpu.accelerator_type": "v5litepod-8", "training.global_batch_size": 36},
    ],
)
def test_what_just_fits_is_accepted(overrides: dict[str, Any]) -> None:
    assert violations(with_overrides(BASE, overrides)) == []


def test_the_defaults_and_every_preset_are_sound() -> None:
    for config in (PipelineConfig(), *map(load_preset, preset_names())):
        assert violations(config) == []


@pytest.mark.parametrize(
    ("accelerator_type", "count"),
    [
        ("v2-8", 4),
        ("v3-32", 16),
        ("v4-8", 4),
        ("v5p-8", 4),
        ("v5litepod-1", 1),
        ("v5litepod-16", 16),
        ("v6e-8", 8),
        ("v4-1", 1),
    ],
)
def test_chips(accelerator_type: str, count: int) -> None:
    assert chips(accelerator_type) == count


@pytest.mark.parametrize(
    ("accelerator_type", "count"),
    [
        ("v2-8", 1),
        ("v3-32", 4),
        ("v4-16", 2),
        ("v5p-8", 1),
        ("v5litepod-8", 1),
        ("v5litepod-16", 4),
        ("v6e-256", 64),
    ],
)
def test_hosts(accelerator_type: str, count: int) -> None:
    assert hosts(accelerator_type) == count


def test_the_emulator_offers_as_many_hosts() -> None:
    assert {name: kind.workers for name, kind in ACCELERATOR_TYPES.items()} == {
        name: hosts(name) for name in ACCELERATOR_TYPES
    }


def test_worst_case_cost() -> None:
    config = with_overrides(
        BASE,
        {
            "tpu.accelerator_type": "v5litepod-8",
            "budget.max_hours": 10.0,
            "budget.price_per_chip_hour": 1.5,
        },
    )
    assert worst_case_cost(config) == pytest.approx(120.0)
