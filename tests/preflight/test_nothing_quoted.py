"""What validate says of files that cannot be used: nothing of what they hold, wherever it is."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from corpus.tokens.vocabulary import SPECIAL_TOKENS
from pipeline_config import load_preset, with_overrides
from pipeline_store import uris
from pipeline_store.layout import StoreLayout
from preflight.run.checks import check
from tests import marked_files
from tests.marked_files import heard
from trained_models.importing.descriptions import ARCHITECTURE

DAY = "2026-01-31"
SMOKE = load_preset("smoke")
WORDS = [f"word{number}" for number in range(200)]


@pytest.fixture
def store(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> StoreLayout:
    """Return a store with a sound partition, all logs on."""
    caplog.set_level(logging.DEBUG)
    store = StoreLayout(str(tmp_path / "store"))
    uris.write(f"{store.root}/corpus/{DAY}/a.txt", b"Some text.\n\nMore text.\n")
    return store


@pytest.fixture
def problems(store: StoreLayout, caplog: pytest.LogCaptureFixture) -> Iterator[Any]:
    """Yield the check of a request; nothing of the files may be in a line of it or of the log."""

    def checked(**settings: Any) -> list[str]:
        chosen = {name.replace("__", "."): value for name, value in settings.items()}
        lines = check(with_overrides(SMOKE, chosen), store, DAY)
        assert not any(map(heard, lines)), lines
        assert not any("could not be checked" in line for line in lines), lines
        return lines

    yield checked
    assert not heard(caplog.text)


@pytest.mark.parametrize("name", marked_files.CORPUS)
def test_text(store: StoreLayout, problems: Any, name: str) -> None:
    file, content = marked_files.CORPUS[name]
    uris.write(f"{store.root}/corpus/x/{file}", content)
    lines = problems(corpus__input_pattern="corpus/x/*")
    assert any(line.startswith(("corpus.input_pattern: ", "corpus.text_field: ")) for line in lines)


@pytest.mark.parametrize("name", marked_files.VOCABULARIES)
def test_vocabulary(store: StoreLayout, problems: Any, name: str) -> None:
    file, content = marked_files.VOCABULARIES[name]
    uris.write(f"{store.root}/imports/{file}", content)
    kind = "sentencepiece" if file.endswith(".model") else "wordpiece"
    lines = problems(vocabulary__uri=f"imports/{file}", vocabulary__kind=kind)
    assert any(line.startswith("vocabulary.uri: ") for line in lines)


@pytest.mark.parametrize("name", marked_files.MODELS)
def test_model(store: StoreLayout, problems: Any, name: str) -> None:
    files = marked_files.MODELS[name]
    marked_files.write_all(Path(store.root, "imports", "model"), files)
    tokens = "".join(f"{token}\n" for token in [*SPECIAL_TOKENS, *WORDS])
    uris.write(f"{store.root}/imports/vocab.txt", tokens.encode())
    start = "imports/model/model.ckpt" if "model.ckpt.index" in files else "imports/model"
    lines = problems(model__init_checkpoint=start, vocabulary__uri="imports/vocab.txt")
    [line] = lines
    assert line.startswith("model.init_checkpoint: ")


@pytest.mark.parametrize("name", marked_files.WEIGHTS)
def test_weights(store: StoreLayout, problems: Any, name: str) -> None:
    described = {"model_type": "bert"} | SMOKE.model.model_dump(include=set(ARCHITECTURE))
    files = {"config.json": json.dumps(described).encode()}
    files |= {"model.safetensors": marked_files.WEIGHTS[name]}
    marked_files.write_all(Path(store.root, "imports", "model"), files)
    tokens = "".join(f"{token}\n" for token in [*SPECIAL_TOKENS, *WORDS])
    uris.write(f"{store.root}/imports/vocab.txt", tokens.encode())
    [line] = problems(model__init_checkpoint="imports/model", vocabulary__uri="imports/vocab.txt")
    assert line.startswith("model.init_checkpoint: ")
    assert "model.safetensors" in line


@pytest.mark.parametrize("key", ["47114711", "4711.4711", "true", "null"])
def test_a_name_that_is_no_text(store: StoreLayout, problems: Any, key: str) -> None:
    files = marked_files.tf_models(marked_files.encoder(f"{key}: 1"))
    marked_files.write_all(Path(store.root, "imports", "model"), files)
    [line] = problems(model__init_checkpoint="imports/model/model.ckpt")
    assert "has 1 name(s) that are no text" in line
    assert key not in line.replace("tf-models", "")


@pytest.mark.parametrize("name", marked_files.TASKS)
def test_labelled_task(store: StoreLayout, problems: Any, name: str) -> None:
    marked_files.write_all(Path(store.task("moods").root), marked_files.TASKS[name])
    lines = problems(promotion__probe_tasks=["moods"])
    assert lines
    assert all(line.startswith("promotion.probe_tasks: ") for line in lines)
