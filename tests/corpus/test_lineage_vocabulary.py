from __future__ import annotations

import hashlib
import json
import logging
from pathlib import Path

import numpy as np
import pytest

from beam_jobs.prepare_corpus import prepare_partition
from beam_jobs.train_vocabulary import ensure_vocabulary
from corpus.errors import BadDataError, UserError
from corpus.text.content import split_of
from corpus.text.record_documents import _features
from corpus.tokens.bpe import train_bpe
from corpus.tokens.bpe_model import ids_of, merges_of
from corpus.tokens.lineage_vocabulary import create_vocabulary, load_vocabulary
from corpus.tokens.sentencepiece_tokens import train_sentencepiece
from corpus.tokens.tokenizing import make_tokenizer
from corpus.tokens.training_text import TrainingText
from corpus.tokens.vocabulary import SPECIAL_TOKENS, Vocabulary
from pipeline_store.formats import Split, VocabularyInfo
from tests.beam_jobs.workspace import Workspace, as_text, documents, make_config

GIVEN = Vocabulary((*SPECIAL_TOKENS, *(f"word{n}" for n in range(300))))


@pytest.fixture
def filled(workspace: Workspace) -> Workspace:
    workspace.put("a.txt", as_text(documents(60)))
    return workspace


def store_given(workspace: Workspace, data: bytes, name: str = "given.txt") -> str:
    """Write a vocabulary file into the store and return its URI."""
    path = Path(workspace.store.root) / name
    path.write_bytes(data)
    return str(path)


def vocabulary_folder(workspace: Workspace) -> Path:
    lineage = workspace.store.lineage(workspace.config.model.lineage_id)
    return Path(lineage.vocabulary).parent


def refusal(workspace: Workspace) -> str:
    with pytest.raises(UserError) as caught:
        ensure_vocabulary(workspace.arguments)
    return str(caught.value)


def test_vocabulary_is_trained_once(filled: Workspace) -> None:
    info, created = ensure_vocabulary(filled.arguments)
    assert created
    assert info.size == 1000
    assert info.source == "trained on partition 2026-01-31"
    assert (info.vocabulary_kind, info.domain_words) == ("wordpiece", [])
    assert info.sha256 == info.tokens_sha256
    vocabulary = load_vocabulary(filled.config, filled.store)
    assert vocabulary.tokens[:5] == SPECIAL_TOKENS
    assert vocabulary.sha256 == info.sha256
    filled.put("b.txt", as_text(documents(60, first=500)))
    assert ensure_vocabulary(filled.arguments) == (info, False)
    assert load_vocabulary(filled.config, filled.store) == vocabulary


def test_equal_text_gives_an_equal_vocabulary_in_every_lineage(filled: Workspace) -> None:
    first, _ = ensure_vocabulary(filled.arguments)
    filled.config = make_config(model__lineage_id="other")
    second, created = ensure_vocabulary(filled.arguments)
    assert created
    assert second.sha256 == first.sha256


@pytest.mark.parametrize("kind", ["wordpiece", "sentencepiece"])
def test_held_out_documents_are_not_trained_on(workspace: Workspace, kind: str) -> None:
    texts = [f"{chr(97 + number) * 3} " * 30 for number in range(26)]
    workspace.config = make_config(
        corpus__validation_fraction=0.5, vocabulary__size=300, vocabulary__kind=kind
    )
    workspace.put("a.txt", as_text(texts))
    ensure_vocabulary(workspace.arguments)
    known = "".join(load_vocabulary(workspace.config, workspace.store).tokens[5:])
    for text in texts:
        held_out = split_of(hashlib.sha256(text.strip().encode()).digest(), 0.5)
        assert (text[0] in known) == (held_out is Split.TRAIN)


def test_nothing_is_trained_on_held_out_documents_alone(workspace: Workspace) -> None:
    workspace.config = make_config(corpus__validation_fraction=1 - 1e-9)
    workspace.put("a.txt", as_text(documents(3)))
    with pytest.raises(BadDataError, match="hold 3 documents, none of them on the training side"):
        ensure_vocabulary(workspace.arguments)


def test_given_vocabulary_is_copied(filled: Workspace, tmp_path: Path) -> None:
    given = tmp_path / "given.txt"
    given.write_bytes(GIVEN.to_bytes().replace(b"\n", b"\r\n"))
    filled.config = make_config(vocabulary__uri=str(given))
    info, created = ensure_vocabulary(filled.arguments)
    assert created
    assert info.source == str(given)
    assert load_vocabulary(filled.config, filled.store) == GIVEN
    assert ensure_vocabulary(filled.arguments) == (info, False)


def test_given_vocabulary_is_checked_before_it_is_taken(filled: Workspace, tmp_path: Path) -> None:
    given = tmp_path / "given.txt"
    filled.config = make_config(vocabulary__uri=str(given))
    assert f"{given} does not exist" in refusal(filled)
    given.write_bytes(b"\xff\xfe")
    assert "not UTF-8" in refusal(filled)
    given.write_text("[PAD]\nword\n")
    assert "lacks [UNK], [CLS], [SEP], [MASK]" in refusal(filled)
    assert not vocabulary_folder(filled).exists()


def test_another_given_vocabulary_is_refused_for_a_lineage_that_has_one(
    filled: Workspace, tmp_path: Path
) -> None:
    ensure_vocabulary(filled.arguments)
    given = tmp_path / "given.txt"
    given.write_bytes(GIVEN.to_bytes())
    filled.config = make_config(vocabulary__uri=str(given))
    assert f"differs from vocabulary.uri={given}" in refusal(filled)
    with pytest.raises(UserError, match=r"differs from vocabulary\.uri="):
        prepare_partition(filled.arguments)


def test_other_casing_is_refused(filled: Workspace) -> None:
    ensure_vocabulary(filled.arguments)
    filled.config = make_config(vocabulary__do_lower_case=False)
    assert "do_lower_case=False differs from True" in refusal(filled)
    with pytest.raises(UserError, match="do_lower_case"):
        load_vocabulary(filled.config, filled.store)


def test_embedding_too_small_is_refused(filled: Workspace) -> None:
    ensure_vocabulary(filled.arguments)
    filled.config = make_config(vocabulary__size=300, model__vocab_size=999)
    assert "1000 tokens but model.vocab_size is 999" in refusal(filled)


def test_changed_vocabulary_is_noticed(filled: Workspace) -> None:
    ensure_vocabulary(filled.arguments)
    path = vocabulary_folder(filled) / "vocab.txt"
    path.write_text(path.read_text() + "extra\n")
    assert "changed after it was committed" in refusal(filled)


def test_missing_vocabulary_says_how_to_make_one(filled: Workspace) -> None:
    with pytest.raises(UserError, match=r"python -m beam_jobs\.train_vocabulary"):
        load_vocabulary(filled.config, filled.store)


def test_untidy_text_gives_no_vocabulary(workspace: Workspace) -> None:
    workspace.put("a.txt", b"")
    with pytest.raises(BadDataError, match="hold no documents"):
        ensure_vocabulary(workspace.arguments)
    assert not vocabulary_folder(workspace).exists()


def test_lower_case_text_is_no_base_for_a_cased_vocabulary(workspace: Workspace) -> None:
    workspace.put("a.txt", as_text(documents(60)).lower())
    workspace.config = make_config(vocabulary__do_lower_case=False)
    assert "capitals" in refusal(workspace)
    assert not vocabulary_folder(workspace).exists()


def test_loser_of_a_race_takes_the_winners_vocabulary(workspace: Workspace) -> None:
    lineage = workspace.store.lineage(workspace.config.model.lineage_id)
    mine = Vocabulary((*GIVEN.tokens, "mine"))
    # The winner has written vocab.txt but not yet committed, or died there.
    folder = vocabulary_folder(workspace)
    folder.mkdir(parents=True)
    (folder / "vocab.txt").write_bytes(GIVEN.to_bytes())
    taken = create_vocabulary(mine, "my text", workspace.config, lineage)
    assert taken == GIVEN
    info = VocabularyInfo.load(lineage.vocabulary_info)
    assert info.sha256 == GIVEN.sha256
    assert "another writer" in info.source
    assert create_vocabulary(mine, "my text", workspace.config, lineage) == GIVEN
    assert VocabularyInfo.load(lineage.vocabulary_info) == info


def files(workspace: Workspace) -> set[str]:
    return {path.name for path in vocabulary_folder(workspace).iterdir()}


def test_sentencepiece_is_trained_once_and_stored_with_its_tokens(filled: Workspace) -> None:
    filled.config = make_config(vocabulary__kind="sentencepiece", vocabulary__size=400)
    info, created = ensure_vocabulary(filled.arguments)
    assert created
    assert info.vocabulary_kind == "sentencepiece"
    assert files(filled) == {"vocab.txt", "sentencepiece.model", "vocabulary.json"}
    model = (vocabulary_folder(filled) / "sentencepiece.model").read_bytes()
    tokens = (vocabulary_folder(filled) / "vocab.txt").read_bytes()
    assert info.sha256 == hashlib.sha256(model).hexdigest()
    assert info.tokens_sha256 == hashlib.sha256(tokens).hexdigest()
    vocabulary = load_vocabulary(filled.config, filled.store)
    assert vocabulary.model == model
    assert vocabulary.to_bytes() == tokens
    assert info.size == len(vocabulary.tokens) <= 400
    assert ensure_vocabulary(filled.arguments) == (info, False)


def test_given_sentencepiece_model_is_copied(filled: Workspace) -> None:
    given = train_sentencepiece(documents(60), size=400, do_lower_case=True)
    assert given.model is not None
    uri = store_given(filled, given.model, "given.model")
    filled.config = make_config(vocabulary__kind="sentencepiece", vocabulary__uri=uri)
    info, created = ensure_vocabulary(filled.arguments)
    assert created
    assert (info.source, info.sha256) == (uri, given.sha256)
    assert load_vocabulary(filled.config, filled.store) == given
    assert ensure_vocabulary(filled.arguments) == (info, False)


BPE = {
    "vocabulary__kind": "bpe",
    "vocabulary__do_lower_case": False,
    "model__architecture": "roberta",
}


def test_byte_level_bpe_is_trained_once_and_makes_rows(filled: Workspace) -> None:
    filled.config = make_config(**BPE, vocabulary__size=400)
    info, created = ensure_vocabulary(filled.arguments)
    assert created
    assert info.vocabulary_kind == "bpe"
    assert files(filled) == {"vocab.txt", "tokenizer.json", "vocabulary.json"}
    vocabulary = load_vocabulary(filled.config, filled.store)
    assert vocabulary.model == (vocabulary_folder(filled) / "tokenizer.json").read_bytes()
    assert (vocabulary.tokens[0], vocabulary.tokens[1]) == ("[CLS]", "[PAD]")
    assert ensure_vocabulary(filled.arguments) == (info, False)

    manifest = prepare_partition(filled.arguments).manifest
    [shard] = filled.shards(manifest)
    assert shard.statistics.unknown_tokens == 0
    # The last row of a document is short.
    row = _features(filled.records(manifest, Split.TRAIN)[-1])["input_ids"]
    (end,) = np.flatnonzero(row == 2)
    assert row[0] == 0
    assert 1 <= len(row[end + 1 :]) == np.count_nonzero(row == 1)


def test_byte_level_bpe_is_given_in_either_form(filled: Workspace) -> None:
    given = train_bpe(documents(60), size=400)
    ids, merges = json.dumps(ids_of(given)).encode(), merges_of(given)
    store_given(filled, "".join(f"{a} {b}\n" for a, b in merges).encode(), "merges.txt")
    both = store_given(filled, ids, "vocab.json")
    one = store_given(filled, given.model or b"", "tokenizer.json")
    for number, uri in enumerate((both, one)):
        settings = BPE | {"vocabulary__uri": uri, "model__lineage_id": f"lineage-{number}"}
        filled.config = make_config(**settings)
        info, created = ensure_vocabulary(filled.arguments)
        assert created
        assert (info.source, info.sha256) == (uri, given.sha256)
        assert load_vocabulary(filled.config, filled.store) == given
    Path(both).with_name("merges.txt").unlink()
    filled.config = make_config(**BPE, vocabulary__uri=both, model__lineage_id="other")
    assert "with merges.txt beside it does not exist" in refusal(filled)


def test_given_vocabulary_has_to_be_of_the_kind_asked_for(filled: Workspace) -> None:
    uri = store_given(filled, GIVEN.to_bytes())
    filled.config = make_config(vocabulary__kind="sentencepiece", vocabulary__uri=uri)
    assert "kind wordpiece, but vocabulary.kind is sentencepiece" in refusal(filled)
    uri = store_given(filled, GIVEN.to_bytes(), "given.model")
    filled.config = make_config(vocabulary__kind="sentencepiece", vocabulary__uri=uri)
    assert "given.model is not a SentencePiece model" in refusal(filled)


def test_lineage_keeps_its_kind(filled: Workspace) -> None:
    ensure_vocabulary(filled.arguments)
    filled.config = make_config(vocabulary__kind="sentencepiece")
    assert "kind wordpiece, but vocabulary.kind is sentencepiece" in refusal(filled)


@pytest.mark.parametrize("name", ["vocab.txt", "sentencepiece.model"])
def test_damage_to_any_file_is_noticed(filled: Workspace, name: str) -> None:
    filled.config = make_config(vocabulary__kind="sentencepiece", vocabulary__size=400)
    ensure_vocabulary(filled.arguments)
    path = vocabulary_folder(filled) / name
    path.write_bytes(path.read_bytes()[:-1])
    assert f"{path} has SHA-256" in refusal(filled)
    path.unlink()
    assert f"{path} is missing" in refusal(filled)


def test_sentencepiece_try_that_died_is_finished(filled: Workspace) -> None:
    filled.config = make_config(vocabulary__kind="sentencepiece", vocabulary__size=400)
    info, _ = ensure_vocabulary(filled.arguments)
    folder = vocabulary_folder(filled)
    for left_out in (["vocabulary.json"], ["vocabulary.json", "vocab.txt"]):
        for name in left_out:
            (folder / name).unlink()
        assert ensure_vocabulary(filled.arguments) == (info, True)


def test_files_of_another_kind_are_not_mixed(filled: Workspace) -> None:
    folder = vocabulary_folder(filled)
    folder.mkdir(parents=True)
    (folder / "sentencepiece.model").write_bytes(b"left over")
    assert f"{folder / 'sentencepiece.model'} was left by a try" in refusal(filled)
    (folder / "sentencepiece.model").unlink()
    (folder / "vocab.txt").write_bytes(GIVEN.to_bytes())
    filled.config = make_config(vocabulary__kind="sentencepiece", vocabulary__size=400)
    assert f"{folder / 'vocab.txt'} was left by a try" in refusal(filled)


def test_text_that_sentencepiece_cannot_learn_from_is_bad_data(workspace: Workspace) -> None:
    characters = [chr(0x4E00 + number) for number in range(2000)]
    workspace.put("a.txt", as_text([" ".join(characters)] * 2))
    workspace.config = make_config(
        vocabulary__kind="sentencepiece",
        vocabulary__size=300,
        corpus__validation_fraction=1e-9,
    )
    with pytest.raises(BadDataError, match=r"a larger vocabulary\.size"):
        ensure_vocabulary(workspace.arguments)
    assert not vocabulary_folder(workspace).exists()


UNUSED = Vocabulary((*SPECIAL_TOKENS, *(f"[unused{n}]" for n in range(4)), *GIVEN.tokens[5:]))
RARE, DOMAIN = "seldom " * 19, "zebra quagga " * 20 + "v8 " * 50


def with_words(workspace: Workspace, count: int) -> Workspace:
    """Ask for domain words of a text, on top of a given vocabulary."""
    workspace.put("a.txt", as_text([f"word1 {RARE} {DOMAIN}", "held out or not " * 5]))
    uri = store_given(workspace, UNUSED.to_bytes())
    workspace.config = make_config(
        vocabulary__uri=uri,
        vocabulary__domain_words=count,
        corpus__validation_fraction=1e-9,
    )
    return workspace


def test_domain_words_take_unused_places(
    workspace: Workspace, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    info, _ = ensure_vocabulary(with_words(workspace, 3).arguments)
    # Not "v8", which is no word of letters, nor "seldom", which is rare, nor "word1", which is one.
    assert info.domain_words == ["quagga", "zebra"]
    assert "2 domain words, the most frequent 20 times" in caplog.text
    # A log is no place for words of the corpus.
    assert "quagga" not in caplog.text
    assert "only 2 of 3 domain words" in caplog.text
    vocabulary = load_vocabulary(workspace.config, workspace.store)
    expected = list(UNUSED.tokens)
    expected[5:7] = ["quagga", "zebra"]
    assert list(vocabulary.tokens) == expected
    assert info.sha256 == vocabulary.sha256 != UNUSED.sha256
    ids, _ = make_tokenizer(vocabulary, True).encode(["Zebra"])
    assert ids.tolist() == [6]
    assert ensure_vocabulary(workspace.arguments) == (info, False)


def test_domain_words_are_as_many_as_asked_for(workspace: Workspace) -> None:
    info, _ = ensure_vocabulary(with_words(workspace, 1).arguments)
    assert info.domain_words == ["quagga"]


def test_more_domain_words_than_places_are_as_many_as_places(
    workspace: Workspace, caplog: pytest.LogCaptureFixture
) -> None:
    many = " ".join(f"animal{letter} " * 30 for letter in "abcdefgh")
    workspace = with_words(workspace, 50)
    workspace.put("b.txt", as_text([many]))
    info, _ = ensure_vocabulary(workspace.arguments)
    assert info.domain_words == ["animala", "animalb", "animalc", "animald"]
    assert "has 4 [unused] places, fewer than vocabulary.domain_words=50" in caplog.text


def test_domain_words_need_places(workspace: Workspace) -> None:
    workspace = with_words(workspace, 2)
    store_given(workspace, GIVEN.to_bytes())
    assert "has no [unused0] or the like" in refusal(workspace)


def test_lineage_with_domain_words_is_not_another_vocabulary(workspace: Workspace) -> None:
    info, _ = ensure_vocabulary(with_words(workspace, 2).arguments)
    store_given(workspace, UNUSED.to_bytes().replace(b"word7\n", b"other\n"))
    assert "differs from vocabulary.uri" in refusal(workspace)
    store_given(workspace, UNUSED.to_bytes())
    assert ensure_vocabulary(workspace.arguments) == (info, False)


def test_training_text_is_every_training_document_once(
    workspace: Workspace, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    texts = documents(40)
    files = [workspace.put("a.txt", as_text(texts[:30])), workspace.put("b.txt", as_text(texts))]
    workspace.config = make_config(corpus__validation_fraction=0.5)
    found = [*TrainingText([str(path) for path in files], workspace.config)]
    whole = [" ".join(text.split()) for text in texts]
    sides = [split_of(hashlib.sha256(text.encode()).digest(), 0.5) for text in whole]
    assert found == [text for text, side in zip(whole, sides, strict=True) if side is Split.TRAIN]
    assert 0 < len(found) < 40
    size = sum(path.stat().st_size for path in files) / 1e6
    assert f"40 different documents, {size:.1f} of {size:.1f} MB" in caplog.text
