"""Which records a training reads, and which manifests it refuses."""

from __future__ import annotations

import pytest

from pipeline_store.formats import PartitionManifest, Split, VocabularyInfo
from tests.training.corpora import VOCABULARY_SIZE, TinyStore, tiny_config
from training import corpus
from training.errors import BadDataError, UserError


def test_union_keeps_order_and_takes_each_shard_once(tiny: TinyStore) -> None:
    first, second = tiny.partition("2026-01-01"), tiny.partition("2026-01-02")
    both = corpus.training_sources([second, first, second], tiny.layout, tiny.config)
    separate = [corpus.training_sources([uri], tiny.layout, tiny.config) for uri in (second, first)]
    assert both == separate[0] + separate[1]


def test_fingerprint_depends_on_order_and_content(tiny: TinyStore) -> None:
    uris = [tiny.partition("2026-01-01"), tiny.partition("2026-01-02")]
    prints = {
        corpus.fingerprint(corpus.training_sources(list(order), tiny.layout, tiny.config))
        for order in (uris, reversed(uris), uris[:1], uris)
    }
    assert len(prints) == 3


def test_held_out_records_are_never_trained_on(tiny: TinyStore) -> None:
    uri = tiny.partition("2026-01-01")
    manifest = PartitionManifest.load(uri)
    train = corpus.training_sources([uri], tiny.layout, tiny.config)
    held_out = corpus.record_sources(manifest, Split.VALIDATION, tiny.layout, tiny.config)
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
        corpus.training_sources([uri], tiny.layout, tiny_config(**setting))


def test_rows_of_both_lengths_can_be_trained_on(tiny: TinyStore) -> None:
    both = {"masking__extra_max_seq_length": 32, "masking__extra_max_predictions_per_seq": 6}
    uri = tiny.using(tiny_config(**both)).partition("2026-01-01")
    short = corpus.training_sources([uri], tiny.layout, tiny_config(**both))
    swapped = tiny_config(
        masking__max_seq_length=32,
        masking__max_predictions_per_seq=6,
        masking__extra_max_seq_length=16,
        masking__extra_max_predictions_per_seq=4,
    )
    long = corpus.training_sources([uri], tiny.layout, swapped)
    assert [source.shard_key for source in short] == [source.shard_key for source in long]
    assert {source.row_format.max_seq_length for source in short} == {16}
    assert {source.row_format.max_seq_length for source in long} == {32}
    assert corpus.fingerprint(short) != corpus.fingerprint(long)
    neither = tiny_config(masking__max_seq_length=24)
    with pytest.raises(UserError, match=r"max_seq_length=16, .* and max_seq_length=32, .* is 24"):
        corpus.training_sources([uri], tiny.layout, neither)


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
        corpus.training_sources([uri], tiny.layout, tiny.config)
    manifest = corpus.load_manifest(uri, tiny.layout, tiny.config)
    assert corpus.record_sources(manifest, Split.VALIDATION, tiny.layout, tiny.config)


def test_masked_rows_are_not_masked_again(tiny: TinyStore) -> None:
    uri = tiny.partition("2026-01-01")
    with pytest.raises(UserError, match=r"rows are masked, but masking\.dynamic is true"):
        corpus.training_sources([uri], tiny.layout, tiny_config(masking__dynamic=True))


def test_vocabulary_larger_than_the_model_is_refused_with_both_numbers(tiny: TinyStore) -> None:
    uri = tiny.partition("2026-01-01")
    info_uri = tiny.layout.lineage("default").vocabulary_info
    info = VocabularyInfo.load(info_uri)
    info.model_copy(update={"size": 5000}).write(info_uri)
    with pytest.raises(UserError, match=r"has 5000 tokens, but model.vocab_size is 320"):
        corpus.training_sources([uri], tiny.layout, tiny.config)
    assert info.size == VOCABULARY_SIZE


def test_another_vocabulary_or_lineage_is_refused(tiny: TinyStore) -> None:
    uri = tiny.partition("2026-01-01")
    manifest = PartitionManifest.load(uri)
    manifest.model_copy(update={"vocabulary_sha256": "0" * 64}).write(uri)
    with pytest.raises(UserError, match=f"made with vocabulary {'0' * 64}"):
        corpus.training_sources([uri], tiny.layout, tiny.config)
    manifest.model_copy(update={"lineage_id": "other"}).write(uri)
    with pytest.raises(UserError, match=r"lineage 'other', but model.lineage_id is 'default'"):
        corpus.training_sources([uri], tiny.layout, tiny.config)


def test_nothing_to_train_on_is_an_error(tiny: TinyStore) -> None:
    uri = tiny.partition("2026-01-01", documents=0)
    with pytest.raises(BadDataError, match="No training records"):
        corpus.training_sources([uri], tiny.layout, tiny.config)
