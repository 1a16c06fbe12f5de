"""Which records a training reads, and which manifests it refuses."""

from __future__ import annotations

import re

import pytest

from pipeline_store.formats import PartitionManifest, Split, TrainingInputs, VocabularyInfo
from tests.training.corpora import VOCABULARY_SIZE, TinyStore, tiny_config
from trained_models import record_sources
from trained_models.errors import BadDataError, UserError


def test_union_keeps_order_and_takes_each_shard_once(tiny: TinyStore) -> None:
    first, second = tiny.partition("2026-01-01"), tiny.partition("2026-01-02")
    both = record_sources.training_sources([second, first, second], tiny.layout, tiny.config)
    separate = [
        record_sources.training_sources([uri], tiny.layout, tiny.config) for uri in (second, first)
    ]
    assert both == separate[0] + separate[1]


def test_fingerprint_depends_on_order_and_content(tiny: TinyStore) -> None:
    uris = [tiny.partition("2026-01-01"), tiny.partition("2026-01-02")]
    prints = {
        record_sources.fingerprint(inputs_of(tiny, list(order), []))
        for order in (uris, reversed(uris), uris[:1], uris)
    }
    assert len(prints) == 3


def test_held_out_records_are_never_trained_on(tiny: TinyStore) -> None:
    uri = tiny.partition("2026-01-01")
    manifest = PartitionManifest.load(uri)
    train = record_sources.training_sources([uri], tiny.layout, tiny.config)
    held_out = record_sources.record_sources(manifest, Split.VALIDATION, tiny.layout, tiny.config)
    assert held_out
    assert not {s.file.data.sha256 for s in train} & {s.file.data.sha256 for s in held_out}


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"masking__max_seq_length": 32}, "max_seq_length=16, .* masking.max_seq_length is 32"),
        (
            {"masking__max_predictions_per_seq": 7},
            "max_predictions_per_seq=4, but .* masking.max_predictions_per_seq is 7",
        ),
    ],
)
def test_other_record_lengths_are_refused_with_both_numbers(
    tiny: TinyStore, setting: dict[str, int], message: str
) -> None:
    uri = tiny.partition("2026-01-01")
    with pytest.raises(UserError, match=message):
        record_sources.training_sources([uri], tiny.layout, tiny_config(**setting))


def test_rows_of_both_lengths_can_be_trained_on(tiny: TinyStore) -> None:
    both = {"masking__extra_max_seq_length": 32, "masking__extra_max_predictions_per_seq": 6}
    uri = tiny.using(tiny_config(**both)).partition("2026-01-01")
    short = record_sources.training_sources([uri], tiny.layout, tiny_config(**both))
    swapped = tiny_config(
        masking__max_seq_length=32,
        masking__max_predictions_per_seq=6,
        masking__extra_max_seq_length=16,
        masking__extra_max_predictions_per_seq=4,
    )
    long = record_sources.training_sources([uri], tiny.layout, swapped)
    assert [source.shard_key for source in short] == [source.shard_key for source in long]
    assert {source.row_format.max_seq_length for source in short} == {16}
    assert {source.row_format.max_seq_length for source in long} == {32}
    neither = tiny_config(masking__max_seq_length=24)
    with pytest.raises(UserError, match=r"max_seq_length=16, .* and max_seq_length=32, .* is 24"):
        record_sources.training_sources([uri], tiny.layout, neither)


@pytest.mark.parametrize(
    ("made_with", "message"),
    [
        (
            {"masking__packing": "segment_pair"},
            "packed as 'segment_pair', but masking.packing is 'doc_sentences'",
        ),
        (
            {"masking__packing": "full_sentences"},
            "packed as 'full_sentences', but masking.packing is 'doc_sentences'",
        ),
        ({"masking__dynamic": True}, "training rows are not masked, but masking.dynamic is false"),
    ],
)
def test_rows_of_another_recipe_are_not_trained_on_but_compared_on(
    tiny: TinyStore, made_with: dict[str, object], message: str
) -> None:
    uri = tiny.using(tiny_config(**made_with)).partition("2026-01-01")
    with pytest.raises(UserError, match=message):
        record_sources.training_sources([uri], tiny.layout, tiny.config)
    manifest = record_sources.load_manifest(uri, tiny.layout, tiny.config)
    assert record_sources.record_sources(manifest, Split.VALIDATION, tiny.layout, tiny.config)


def test_masked_rows_are_not_masked_again(tiny: TinyStore) -> None:
    uri = tiny.partition("2026-01-01")
    with pytest.raises(UserError, match=r"rows are masked, but masking\.dynamic is true"):
        record_sources.training_sources([uri], tiny.layout, tiny_config(masking__dynamic=True))


def test_vocabulary_larger_than_the_model_is_refused_with_both_numbers(tiny: TinyStore) -> None:
    uri = tiny.partition("2026-01-01")
    info_uri = tiny.layout.lineage("default").vocabulary_info
    info = VocabularyInfo.load(info_uri)
    info.model_copy(update={"size": 5000}).write(info_uri)
    with pytest.raises(UserError, match=r"has 5000 tokens, but model.vocab_size is 320"):
        record_sources.training_sources([uri], tiny.layout, tiny.config)
    assert info.size == VOCABULARY_SIZE


def test_another_vocabulary_or_lineage_is_refused(tiny: TinyStore) -> None:
    uri = tiny.partition("2026-01-01")
    manifest = PartitionManifest.load(uri)
    manifest.model_copy(update={"vocabulary_sha256": "0" * 64}).write(uri)
    with pytest.raises(UserError, match=f"made with vocabulary {'0' * 64}"):
        record_sources.training_sources([uri], tiny.layout, tiny.config)
    manifest.model_copy(update={"lineage_id": "other"}).write(uri)
    with pytest.raises(UserError, match=r"lineage 'other', but model.lineage_id is 'default'"):
        record_sources.training_sources([uri], tiny.layout, tiny.config)


def test_nothing_to_train_on_is_an_error(tiny: TinyStore) -> None:
    uri = tiny.partition("2026-01-01", documents=0)
    with pytest.raises(BadDataError, match="No training records"):
        record_sources.training_sources([uri], tiny.layout, tiny.config)


BOTH_LENGTHS = {"masking__extra_max_seq_length": 32, "masking__extra_max_predictions_per_seq": 6}
CURRICULUM = tiny_config(**BOTH_LENGTHS, training__extra_steps_fraction=0.25)
REPLAY = tiny_config(training__replay_fraction=0.1)


def test_each_phase_has_the_files_of_its_length(tiny: TinyStore) -> None:
    uri = tiny.using(CURRICULUM).partition("2026-01-01")
    main, extra = record_sources.phase_sources([uri], [], tiny.layout, CURRICULUM)
    assert [source.row_format.max_seq_length for source in main.new] == [16, 16]
    assert [source.row_format.max_seq_length for source in extra.new] == [32, 32]
    assert [s.shard_key for s in main.new] == [s.shard_key for s in extra.new]
    assert main.replay == extra.replay == []


def test_partition_without_the_extra_length_is_refused_with_both(tiny: TinyStore) -> None:
    uri = tiny.partition("2026-01-01")
    with pytest.raises(
        UserError, match=r"01-01/.*max_seq_length=16, .* masking\.extra_max_seq_length is 32"
    ):
        record_sources.phase_sources([uri], [], tiny.layout, CURRICULUM)
    # Nothing reads them without the curriculum, nor when models are compared.
    short = tiny_config(**BOTH_LENGTHS)
    assert record_sources.phase_sources([uri], [], tiny.layout, short)[0].new
    assert record_sources.load_manifest(uri, tiny.layout, CURRICULUM)


def test_replayed_partition_without_the_extra_length_is_refused(tiny: TinyStore) -> None:
    config = tiny_config(
        **BOTH_LENGTHS, training__extra_steps_fraction=0.25, training__replay_fraction=0.1
    )
    old, new = tiny.partition("2026-01-01"), tiny.using(config).partition("2026-01-02")
    with pytest.raises(
        UserError, match=r"01-01/.*max_seq_length=16, .* masking.extra_max_seq_length"
    ):
        record_sources.phase_sources([new], [old], tiny.layout, config)


def test_shard_of_both_pools_is_new(tiny: TinyStore) -> None:
    first, second = tiny.partition("2026-01-01"), tiny.partition("2026-01-02")
    (part,) = record_sources.phase_sources([second], [first, second], tiny.layout, REPLAY)
    assert part.new == record_sources.training_sources([second], tiny.layout, REPLAY)
    assert part.replay == record_sources.training_sources([first], tiny.layout, REPLAY)


def test_partitions_to_replay_without_a_share_are_refused(tiny: TinyStore) -> None:
    first, second = tiny.partition("2026-01-01"), tiny.partition("2026-01-02")
    message = r"1 manifests .*--replay-manifest, but training\.replay_fraction is 0"
    config = tiny_config(training__replay_fraction=0.0)
    with pytest.raises(UserError, match=message):
        record_sources.phase_sources([second], [first], tiny.layout, config)


def test_share_without_partitions_to_replay_is_all_new(tiny: TinyStore) -> None:
    uri = tiny.partition("2026-01-01")
    (part,) = record_sources.phase_sources([uri], [], tiny.layout, REPLAY)
    assert part.new
    assert part.replay == []


def test_fingerprint_covers_every_pool(tiny: TinyStore) -> None:
    config = tiny_config(
        **BOTH_LENGTHS, training__extra_steps_fraction=0.25, training__replay_fraction=0.1
    )
    store = tiny.using(config)
    one, two, three = (store.partition(f"2026-01-0{day}") for day in (1, 2, 3))
    pools: list[tuple[list[str], list[str]]] = [
        ([one], []),
        ([one, two], []),
        ([one], [two]),
        ([two], [one]),
        ([one], [two, three]),
        ([one], [three, two]),
    ]
    prints = set()
    for new, replay in pools:
        inputs = inputs_of(store, new, replay)
        assert list(inputs.extra_records) == list(inputs.records)
        assert inputs.extra_records != inputs.records
        assert list(inputs.extra_replay_records) == list(inputs.replay_records)
        prints.add(record_sources.fingerprint(inputs))
        # A change of the long rows alone is one too.
        first = next(iter(inputs.extra_records))
        changed = {**inputs.extra_records, first: "0" * 64}
        prints.add(record_sources.fingerprint(inputs.model_copy(update={"extra_records": changed})))
    assert len(prints) == 2 * len(pools)


def inputs_of(store: TinyStore, new: list[str], replay: list[str]) -> TrainingInputs:
    parts = record_sources.phase_sources(new, replay, store.layout, store.config)
    vocabulary = record_sources.vocabulary_info(store.layout, store.config)
    return record_sources.training_inputs(parts, vocabulary, store.config)


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ({"masking__masked_lm_prob": 0.3}, "masking.masked_lm_prob=0.15, but it is 0.3 here"),
        ({"masking__unit": "word"}, "masking.unit='token', but it is 'word' here"),
        ({"masking__dupe_factor": 2}, "masking.dupe_factor=1, but it is 2 here"),
    ],
)
def test_masks_that_were_drawn_otherwise_are_refused_with_both(
    tiny: TinyStore, overrides: dict[str, object], words: str
) -> None:
    uri = tiny.partition("2026-01-01")
    with pytest.raises(UserError, match=re.escape(words)):
        record_sources.training_manifest(uri, tiny.layout, tiny_config(**overrides))


def test_masks_that_the_trainer_draws_may_change(tiny: TinyStore) -> None:
    tiny = tiny.using(tiny_config(masking__dynamic=True))
    uri = tiny.partition("2026-01-01")
    changed = tiny_config(masking__dynamic=True, masking__unit="word", masking__masked_lm_prob=0.3)
    record_sources.training_manifest(uri, tiny.layout, changed)
