from __future__ import annotations

from pathlib import Path

import pytest

from beam_jobs.errors import BadDataError, UserError
from beam_jobs.lineage_vocabulary import create_vocabulary, load_vocabulary
from beam_jobs.train_vocabulary import ensure_vocabulary
from beam_jobs.vocabulary import SPECIAL_TOKENS, Vocabulary
from pipeline_store.formats import VocabularyInfo
from tests.beam_jobs.workspace import Workspace, as_text, documents, make_config

GIVEN = Vocabulary((*SPECIAL_TOKENS, *(f"word{n}" for n in range(300))))


@pytest.fixture
def filled(workspace: Workspace) -> Workspace:
    workspace.put("a.txt", as_text(documents(60)))
    return workspace


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


def test_held_out_documents_are_not_trained_on(workspace: Workspace) -> None:
    workspace.config = make_config(corpus__validation_fraction=0.99, vocabulary__size=300)
    workspace.put("a.txt", as_text(["zebra quagga " * 30 for _ in range(1)]))
    # The only document is held out or not; its words are known exactly if it is not.
    ensure_vocabulary(workspace.arguments)
    tokens = load_vocabulary(workspace.config, workspace.store).tokens
    assert not any("z" in token or "q" in token for token in tokens)


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
    with pytest.raises(BadDataError, match="hold no document"):
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
