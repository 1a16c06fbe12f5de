"""Vocabularies of the source and here: each token keeps its row, new ones get one of their own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordPiece

from tests.training.corpora import TOKENS, tiny_config
from tests.training.importing.test_import_hugging_face import CLOSE
from tests.training.pretrained import (
    SETTINGS,
    batch,
    bert_outputs,
    bert_weights,
    write_hugging_face,
    write_vocabulary,
)
from trained_models.errors import UserError
from trained_models.importing.sources import SourceKind
from trained_models.importing.vocabulary import (
    SourceVocabulary,
    plan_rows,
    source_vocabulary,
    split_into_pieces,
)
from training.architectures.models import build_model
from training.importing.loading import InitialModel
from training.model import checkpoints

SPECIAL = TOKENS[:5]
PIECES = [*SPECIAL, "[unused0]", "token", "##s", "##ize", "izer", "a", "##b", "##ab"]


def vocabulary(tokens: list[str]) -> SourceVocabulary:
    return SourceVocabulary("there/vocab.txt", {token: n for n, token in enumerate(tokens)})


def table(rows: int) -> np.ndarray:
    return np.arange(rows * 2, dtype=np.float32).reshape(rows, 2) + 1


def test_the_same_vocabulary_keeps_the_table_padding_included() -> None:
    rows = plan_rows(vocabulary(PIECES), 20, PIECES, 20)
    np.testing.assert_array_equal(rows.apply(table(20), np.zeros((20, 2))), table(20))
    assert list(rows.sentences()) == []


def test_padding_of_another_length_keeps_what_is_here() -> None:
    rows = plan_rows(vocabulary(PIECES), len(PIECES), PIECES, 20)
    value = rows.apply(table(len(PIECES)), np.full((20, 2), -1.0))
    np.testing.assert_array_equal(value[: len(PIECES)], table(len(PIECES)))
    assert (value[len(PIECES) :] == -1).all()


def test_new_tokens_start_as_the_mean_of_their_pieces() -> None:
    here = [*PIECES, "tokenizes", "##babs", "xyz"]
    here[5] = "tokens"  # a domain word in the place of [unused0]
    here[-4], here[6] = here[6], here[-4]  # other places change nothing
    rows = plan_rows(vocabulary(PIECES), len(PIECES), here, 20)
    source = table(len(PIECES))
    value = rows.apply(source, np.full((20, 2), -1.0))
    by_token = dict(zip(PIECES, source, strict=True))

    def mean(*pieces: str) -> Any:
        return np.mean([by_token[piece] for piece in pieces], axis=0)

    wanted = {piece: row for piece, row in by_token.items() if piece in here}
    wanted["tokens"] = mean("token", "##s")
    wanted["tokenizes"] = mean("token", "##ize", "##s")
    wanted["##babs"] = mean("##b", "##ab", "##s")
    wanted["xyz"] = np.full(2, -1.0)
    for number, token in enumerate(here):
        np.testing.assert_allclose(value[number], wanted[token], err_msg=token)
    assert (value[len(here) :] == -1).all()
    (sentence,) = rows.sentences()
    assert sentence.startswith("Vocabulary: 12 tokens keep their weights, 3 new ones start as the")
    assert sentence.endswith("1 at random, 1 of the source are dropped.")


def test_pieces_are_those_of_the_library() -> None:
    random = np.random.default_rng(3)
    ids = {token: number for number, token in enumerate(PIECES)}
    library = Tokenizer(WordPiece(ids, unk_token=SPECIAL[1]))
    letters = [*"ab", "token", "ize", "izer", "s", "c"]
    for _ in range(300):
        word = "".join(random.choice(letters, random.integers(1, 5)))
        found = library.encode(word).tokens
        assert split_into_pieces(word, ids, "##") == ([] if "[UNK]" in found else found), word


def test_pieces_of_a_sentencepiece_vocabulary_have_no_mark_inside() -> None:
    pieces = [*SPECIAL, "▁the", "▁token", "ize", "s"]
    rows = plan_rows(vocabulary(pieces), 9, [*pieces, "▁tokenizes"], 20)
    assert rows.means == {9: [6, 7, 8]}


def test_the_other_kind_is_refused() -> None:
    with pytest.raises(UserError, match=r"is a wordpiece vocabulary, the lineage's is sent"):
        plan_rows(vocabulary(PIECES), 20, [*SPECIAL, "▁the", "▁a"], 20)


def test_a_missing_special_token_is_refused() -> None:
    with pytest.raises(UserError, match=r"there/vocab\.txt lacks \[UNK\], \[MASK\]"):
        plan_rows(vocabulary(["[PAD]", "[CLS]", "[SEP]", "a"]), 4, TOKENS, 320)


def test_more_tokens_than_rows_are_refused() -> None:
    with pytest.raises(UserError, match=r"has 13 tokens, but the embedding has 12 rows"):
        plan_rows(vocabulary(PIECES), 12, TOKENS, 320)


@pytest.mark.parametrize("rows", [len(TOKENS), 320])
def test_an_unknown_vocabulary_of_equal_size_is_taken_with_a_warning(rows: int) -> None:
    planned = plan_rows(None, rows, TOKENS, 320)
    (sentence,) = planned.sentences()
    assert sentence.startswith("WARNING: there is no vocab.txt beside the weights")
    value = planned.apply(table(rows), np.zeros((320, 2)))
    np.testing.assert_array_equal(value[:rows], table(rows))


def test_an_unknown_vocabulary_of_another_size_is_refused() -> None:
    with pytest.raises(UserError, match=r"the embedding has 310 rows, while .* has 300 tokens"):
        plan_rows(None, 310, TOKENS, 320)


# Where it is read from


def test_a_tokenizer_serves_where_there_is_no_vocabulary(tmp_path: Path) -> None:
    content = {
        "model": {"type": "WordPiece", "vocab": {token: n for n, token in enumerate(PIECES)}},
        "added_tokens": [{"id": len(PIECES), "content": "[NEW]"}, {"id": 0, "content": "[PAD]"}],
    }
    Path(tmp_path, "tokenizer.json").write_text(json.dumps(content))
    found = source_vocabulary(str(tmp_path), SourceKind.HUGGING_FACE)
    assert found is not None
    assert found.tokens == (*PIECES, "[NEW]")
    write_vocabulary(tmp_path, PIECES)
    Path(tmp_path, "added_tokens.json").write_text('{"[LAST]": 13}')
    found = source_vocabulary(str(tmp_path), SourceKind.HUGGING_FACE)
    assert found is not None
    assert found.tokens == (*PIECES, "[LAST]")


@pytest.mark.parametrize(
    ("name", "content"),
    [("vocab.txt", b"\xff\xfe"), ("tokenizer.json", b"{}"), ("tokenizer.json", b"[")],
)
def test_a_vocabulary_that_cannot_be_read_is_refused(
    tmp_path: Path, name: str, content: bytes
) -> None:
    Path(tmp_path, name).write_bytes(content)
    with pytest.raises(UserError, match=f"{name} is not a vocabulary that can be read"):
        source_vocabulary(str(tmp_path), SourceKind.HUGGING_FACE)


# In a model


def test_a_model_with_a_grown_vocabulary_computes_the_same(tmp_path: Path) -> None:
    # The source has the same words in other places, and lacks the last one.
    random = np.random.default_rng(2)
    order = np.concatenate([np.arange(5), 5 + random.permutation(len(TOKENS) - 6)])
    there = [TOKENS[number] for number in order]
    uri = write_hugging_face(tmp_path / "hf", bert_weights(), tokens=there)
    config = tiny_config(**SETTINGS)
    model = build_model(config)
    report = checkpoints.load_weights(model, InitialModel(uri, config.model, tuple(TOKENS)))
    assert "299 tokens keep their weights, 0 new ones start as the mean of" in str(report)

    rows = batch() | {"input_word_ids": random.integers(0, 299, (3, 16)).astype(np.int32)}
    expected = bert_outputs(bert_weights(), rows)
    ids_here = rows | {"input_word_ids": order[rows["input_word_ids"]].astype(np.int32)}
    outputs = model(ids_here)
    assert np.abs(np.stack(outputs["encoder_outputs"]) - expected["encoder_outputs"]).max() < CLOSE
    logits = outputs["mlm_logits"].numpy()[..., order]
    assert np.abs(logits - expected["mlm_logits"][..., :299]).max() < CLOSE


def test_a_smaller_model_vocabulary_drops_rows(tmp_path: Path) -> None:
    uri = write_hugging_face(tmp_path / "hf", bert_weights())
    config = tiny_config(**SETTINGS | {"model__vocab_size": 300})
    model = build_model(config)
    checkpoints.load_weights(model, InitialModel(uri, config.model, tuple(TOKENS)))
    words = model.encoder_network.get_embedding_table().numpy()
    wanted = bert_weights()["bert.embeddings.word_embeddings.weight"][:300]
    np.testing.assert_array_equal(words, wanted)
