"""Rows of T5: a shard's text in its own tokens, its spans hidden by the trainer or frozen."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import sentencepiece

from corpus.mlm_records import MaskingRecipe, mask_rows, row_keys, token_table
from corpus.mlm_records.spans import restore_rows
from corpus.tokens.sentencepiece_tokens import train_sentencepiece
from corpus.tokens.vocabulary import Vocabulary, check_vocabulary, sentinel
from pipeline_store.formats import Split
from tests.beam_jobs.workspace import as_text, documents
from tests.corpus.converted import Converted, convert

TEXTS = documents(40)
PAD_ID, END_ID, UNKNOWN_ID = 0, 1, 2
SETTINGS = {
    "model__architecture": "t5",
    "model__hidden_act": "relu",
    "vocabulary__kind": "t5",
    "vocabulary__do_lower_case": False,
    "masking__unit": "sentinel",
    "masking__max_predictions_per_seq": 26,
    "promotion__export_formats": ["hugging_face"],
}


@cache
def vocabulary() -> Vocabulary:
    return train_sentencepiece(TEXTS, size=400, do_lower_case=False, for_t5=True)


def converted(**changes: object) -> Converted:
    return convert(as_text(TEXTS), vocabulary=vocabulary(), **SETTINGS | changes)


def restored(rows: dict[str, np.ndarray]) -> np.ndarray:
    names = ("input_ids", "masked_lm_ids", "masked_lm_positions", "masked_lm_weights")
    return restore_rows(*(rows[name] for name in names), rows["input_mask"].sum(axis=1))


def test_its_vocabulary_is_that_of_the_library_with_sentinels_behind() -> None:
    mine = vocabulary()
    library = sentencepiece.SentencePieceProcessor(model_proto=mine.model)
    pieces = len(library)
    assert len(mine.tokens) == pieces + 100 <= 400
    assert (library.pad_id(), library.eos_id(), library.unk_id()) == (0, 1, 2)
    assert mine.tokens[:3] == ("[PAD]", "[SEP]", "[UNK]")
    # As in transformers' T5Tokenizer: the first one is last.
    assert mine.ids[sentinel(0)] == pieces + 99
    assert mine.ids[sentinel(99)] == pieces
    assert mine.tokens[3:pieces] == tuple(map(library.id_to_piece, range(3, pieces)))
    assert check_vocabulary(mine.tokens, do_lower_case=False, vocab_size=400, kind="t5") == []
    [line] = check_vocabulary(mine.tokens[:-1], do_lower_case=False, vocab_size=400, kind="t5")
    assert "lacks <extra_id_0> and 0 more" in line


@pytest.mark.parametrize("packing", ["doc_sentences", "full_sentences"])
def test_held_out_rows_rebuild_the_documents(packing: str) -> None:
    found = converted(masking__packing=packing)
    rows = found.parsed(Split.VALIDATION)
    whole = restored(rows)
    lengths = rows["input_mask"].sum(axis=1)
    ends = whole[np.arange(len(whole)), lengths - 1]
    assert set(whole[:, 0]) == set(ends) == {END_ID}
    library = sentencepiece.SentencePieceProcessor(model_proto=vocabulary().model)
    held_out: dict[int, list[int]] = {}
    for document, row, length in zip(rows["document_id"][:, 0], whole, lengths, strict=True):
        held_out.setdefault(int(document), []).extend(row[1 : length - 1].tolist())
    texts = {library.decode(ids) for ids in held_out.values()}
    assert texts <= {" ".join(text.split()) for text in TEXTS}
    assert len(texts) > 1


def test_spans_of_the_trainer_are_those_that_the_data_job_would_have_written() -> None:
    static, dynamic = converted(masking__dynamic=False), converted(masking__dynamic=True)
    assert dynamic.records(Split.VALIDATION) == static.records(Split.VALIDATION)
    rows, wanted = dynamic.parsed(), static.parsed()
    np.testing.assert_array_equal(rows["input_ids"], restored(wanted))
    identities = (rows[name][:, 0].view(np.uint64) for name in ("document_id", "row_number"))
    masked = mask_rows(
        rows["input_ids"].astype(np.int32),
        rows["input_mask"].sum(axis=1).astype(np.int32),
        row_keys(*identities, 0),
        token_table(vocabulary().tokens, "t5"),
        MaskingRecipe.of(dynamic.config.masking, 26),
    )
    np.testing.assert_array_equal(masked.input_ids, wanted["input_ids"])
    np.testing.assert_array_equal(masked.ids, wanted["masked_lm_ids"])
    np.testing.assert_array_equal(masked.weights, wanted["masked_lm_weights"])
