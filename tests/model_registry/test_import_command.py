"""One command begins a lineage with a published model."""

from __future__ import annotations

import json
import string
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from model_registry import import_command, lease, registry
from model_registry.__main__ import main
from pipeline_config import parse_config
from pipeline_store.formats import PartitionManifest, RunRecord
from pipeline_store.layout import StoreLayout
from tests.beam_jobs.workspace import as_text, documents
from tests.training.pretrained import bert_weights, write_hugging_face
from training import import_model

DAY = "2026-01-01"
SYLLABLES = ["ba", "ke", "li", "mo", "nu", "pra", "tri", "sto", "wen", "xi", "dor", "fal", "gim"]
LETTERS = [*string.ascii_lowercase, *SYLLABLES]
TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ".", *LETTERS, *(f"##{t}" for t in LETTERS)]


class Beginning:
    """A store with text of one day, and the settings that begin a lineage with a model."""

    def __init__(self, folder: Path) -> None:
        self.source = write_hugging_face(folder / "hf", bert_weights(), tokens=TOKENS)
        self.store = StoreLayout(str(folder / "store"))
        corpus = folder / "store" / "corpus" / DAY
        corpus.mkdir(parents=True)
        (corpus / "a.txt").write_bytes(as_text(documents(60)))
        self.preset = folder / "mine.toml"
        words = [self.source, "--write-preset", str(self.preset), "--extends", "smoke"]
        assert import_model.main(words) == 0

    def command(self, *more: str) -> int:
        words = ["--preset", str(self.preset), "--partition", DAY, "--store", self.store.root]
        return main(["import", *words, *more])


@pytest.fixture
def beginning(tmp_path: Path) -> Beginning:
    return Beginning(tmp_path)


@pytest.mark.thorough
def test_a_lineage_begins_with_a_published_model(
    beginning: Beginning, capfd: pytest.CaptureFixture[str]
) -> None:
    capfd.readouterr()
    assert beginning.command() == 0
    output = capfd.readouterr()
    printed: dict[str, Any] = json.loads(output.out.splitlines()[-1])
    lineage = beginning.store.lineage("default")
    version = registry.production(lineage)
    assert version is not None
    assert printed["version"] == version.version_id
    assert printed[f"candidate/{DAY}/masked_lm_loss"] > 0
    assert f"In use: {version.version_id}. Imported from {beginning.source}. On" in output.err
    assert "not better than the frequencies of tokens" in output.err
    [(uri, manifest)] = [
        (name, PartitionManifest.load(str(name)))
        for name in Path(lineage.manifests(DAY)).glob("*.json")
    ]
    assert manifest.vocabulary_sha256 == version.vocabulary_sha256
    assert uri.exists()
    # The lineage is free for its first run, and begins only once.
    assert lease.holder(lineage) is None
    assert beginning.command() == 1
    assert "has a model in use" in capfd.readouterr().err


@pytest.mark.thorough
def test_a_lineage_that_a_run_is_about_to_begin_is_left_to_it(
    beginning: Beginning, capfd: pytest.CaptureFixture[str]
) -> None:
    lineage = beginning.store.lineage("default")
    now = datetime.now(UTC)
    record = RunRecord(
        run_key="0" * 12,
        dag_id="bert_repretraining",
        run_id="first",
        partition=DAY,
        lineage_id="default",
        config_sha256="0",
        created=now,
    )
    expires = now + timedelta(hours=1)
    lease.acquire(lineage, record, expires=expires, poll_seconds=1.0, has_ended=lambda held: False)
    assert beginning.command() == 1
    assert "Not imported: the lineage is held by run first" in capfd.readouterr().err
    assert registry.production(lineage) is None
    assert lease.waiting(lineage) == []


def test_another_try_has_the_settings_that_it_is_given(
    beginning: Beginning, monkeypatch: pytest.MonkeyPatch
) -> None:
    used = list[int]()

    def fail(module: str, arguments: list[str]) -> dict[str, Any]:
        config = arguments[arguments.index("--config") + 1]
        used.append(parse_config(Path(config).read_bytes(), config).training.random_seed)
        raise import_command.CommandError(module, 40)

    monkeypatch.setattr(import_command, "_run", fail)
    assert [beginning.command("--set", f"training.random_seed={n}") for n in (7, 8)] == [40, 40]
    assert used == [7, 8]


def test_what_cannot_be_a_beginning_is_refused(
    beginning: Beginning, capfd: pytest.CaptureFixture[str]
) -> None:
    beginning.preset.write_text('extends = "smoke"\n')
    assert beginning.command() == 1
    assert "Nothing to import: model.init_checkpoint is None" in capfd.readouterr().err
    assert main(["import", "--preset", "no-such", "--partition", DAY]) == 1
    assert "no-such" in capfd.readouterr().err
