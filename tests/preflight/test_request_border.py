"""What requests may read: each setting, each reader, and what the installation's presets name."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from beam_jobs.labelled import inputs
from beam_jobs.labelled.description import load_task
from corpus.duplicates import signing
from corpus.errors import UserError
from corpus.labelled.reading import read_examples, why_unusable
from corpus.partitions import choose_partition, find_files
from corpus.text.inputs import list_inputs
from corpus.tokens.lineage_vocabulary import read_vocabulary
from corpus.tokens.training_text import TrainingText
from pipeline_config import (
    ConfigError,
    FinetuningConfig,
    PipelineConfig,
    TaskConfig,
    load_finetuning_preset,
    load_preset,
    with_overrides,
)
from pipeline_config.requests import marked
from pipeline_config.sections import Mark
from pipeline_config.settings import Settings, load_settings
from pipeline_store import request_paths, uris
from pipeline_store.formats import TaskSplit
from pipeline_store.layout import StoreLayout
from pipeline_store.request_paths import OutsideRootsError, RequestRoots
from preflight.request import outside_problems, request_roots
from preflight.run import inputs as run_inputs
from preflight.run import lineage
from trained_models.architectures.bert.record import SETTINGS
from trained_models.artifacts import model_files
from trained_models.errors import BadDataError
from trained_models.importing import sources
from trained_models.importing.descriptions import describe
from trained_models.importing.sources import SourceKind
from trained_models.importing.vocabulary import source_vocabulary
from trained_models.text_to_text import sizes
from training import predict
from training.finetuning.exporting.text_files import read_texts
from training.text_to_text.preparation import load_mixture
from training.text_to_text.rows import read_sentencepiece

SECRET = "the secret of the worker"  # noqa: S105


@pytest.fixture
def store(tmp_path: Path) -> StoreLayout:
    layout = StoreLayout(str(tmp_path / "store"))
    uris.write(f"{layout.root}/corpus/day-1/a.txt", b"text\n")
    (tmp_path / "secret.txt").write_text(SECRET)
    return layout


def settings(**environment: str) -> Settings:
    return load_settings({f"REPRETRAIN_{name}": value for name, value in environment.items()})


@pytest.fixture
def roots(store: StoreLayout) -> RequestRoots:
    return request_roots(settings(PRESET="smoke", FINETUNING_PRESET="finetuning_smoke"), store)


# --- every setting that is a path


PATHS = sorted(marked(PipelineConfig, Mark.TEXT_PATH, Mark.MODEL_PATH))


def test_the_settings_that_are_paths() -> None:
    assert PATHS == ["corpus.input_pattern", "model.init_checkpoint", "vocabulary.uri"]
    of_finetuning = list(marked(FinetuningConfig, Mark.TEXT_PATH, Mark.MODEL_PATH))
    assert of_finetuning == ["text_to_text.init_checkpoint"]


@pytest.mark.parametrize("name", [*PATHS, "text_to_text.init_checkpoint"])
@pytest.mark.parametrize(
    "value",
    [
        "/etc/shadow",
        "/etc/*",
        "file:///etc/shadow",
        "runs/0123/config.json",
        "../secret.txt",
        "corpus/../../secret.txt",
        "corpus/*/../../../secret.txt",
        "corpus/[a]/../../runs/x",
        "/{x}/..",
        "gs://elsewhere/x",
        "ftp://host/x",
    ],
)
def test_no_setting_may_name_what_lies_elsewhere(
    store: StoreLayout, roots: RequestRoots, name: str, value: str
) -> None:
    if name in PATHS:
        config: Any = with_overrides(load_preset("smoke"), {name: value})
    else:
        config = with_overrides(load_finetuning_preset("finetuning_smoke"), {name: value})
    [problem] = outside_problems(config, roots, store)
    assert problem.startswith(f"{name}: ")
    assert SECRET not in problem


@pytest.mark.parametrize("name", PATHS)
@pytest.mark.parametrize("value", ["corpus/a\nb", "corpus/\x1b[2Kb", "corpus/\u2028a", "a\n/etc"])
def test_no_path_can_pass_for_a_line_of_the_log(
    store: StoreLayout, roots: RequestRoots, name: str, value: str
) -> None:
    config = with_overrides(load_preset("smoke"), {name: value})
    [problem] = outside_problems(config, roots, store)
    assert problem.startswith(f"{name}: ")
    assert "which paths may not have" in problem
    assert problem.isprintable()


@pytest.mark.parametrize("name", PATHS)
@pytest.mark.parametrize(
    "value",
    [
        "corpus/" + "a" * 5000,
        "corpus/" + "ä" * 128,
        "corpus/" + "a/" * 2500 + "a",
        "corpus/{partition}" + "a" * 200,
        "gs://bucket/corpus/" + "a" * 1025,
    ],
    ids=["name", "bytes", "path", "partition", "object"],
)
def test_a_path_longer_than_any_file_has_is_refused(
    store: StoreLayout, name: str, value: str
) -> None:
    roots = RequestRoots.of(store.root, ["corpus", "gs://bucket/corpus"])
    config = with_overrides(load_preset("smoke"), {name: value})
    [problem] = outside_problems(config, roots, store)
    assert problem.startswith(f"{name}: ")
    assert "longer than" in problem
    assert len(problem) < 300


@pytest.mark.parametrize("name", PATHS)
def test_each_setting_may_name_what_lies_below_a_root(
    store: StoreLayout, roots: RequestRoots, name: str
) -> None:
    for value in ("corpus/day-1/a.txt", "imports/a", f"{store.root}/imports/a"):
        config = with_overrides(load_preset("smoke"), {name: value})
        assert list(outside_problems(config, roots, store)) == []


# --- what the installation names itself


def preset(folder: Path, **values: str) -> str:
    sections: dict[str, list[str]] = {}
    for name, value in values.items():
        section, _, key = name.partition("__")
        sections.setdefault(section, []).append(f"{key} = {json.dumps(value)}")
    path = folder / "preset.toml"
    path.write_text("".join(f"[{s}]\n" + "\n".join(lines) + "\n" for s, lines in sections.items()))
    return str(path)


@pytest.mark.parametrize(
    "pattern",
    [
        "{partition}/*.txt",
        "*/{partition}.txt",
        "TMP/{partition}/corpus/*/*.txt",
        "TMP/outside/{partition}/*.txt",
        "TMP/outside/{partition}/*.txt, corpus/{partition}/*",
        "TMP/outside/all.txt",
    ],
)
def test_a_presets_text_passes_the_border(tmp_path: Path, store: StoreLayout, pattern: str) -> None:
    pattern = pattern.replace("TMP", str(tmp_path))
    path = preset(tmp_path, corpus__input_pattern=pattern)
    roots = request_roots(settings(PRESET=path, STORE_URI=store.root), store)
    assert list(outside_problems(load_preset(path), roots, store)) == []
    # Whatever it names, the runs of others stay closed.
    for other in (f"{store.root}/runs/k/config.json", f"{tmp_path}/secret.txt"):
        with pytest.raises(OutsideRootsError):
            roots.require(other)


@pytest.mark.parametrize("root", ["../elsewhere", "ftp://host/x"])
def test_a_root_that_cannot_be_one_is_refused_in_words(store: StoreLayout, root: str) -> None:
    with pytest.raises(ConfigError, match=f"REPRETRAIN_INPUT_ROOTS or a preset.*{root}"):
        request_roots(settings(INPUT_ROOTS=f"corpus,{root}"), store)


def test_a_preset_whose_partitions_lie_in_the_store_itself_finds_its_files(
    tmp_path: Path, store: StoreLayout
) -> None:
    uris.write(f"{store.root}/day-1/a.txt", b"text\n")
    uris.write(f"{store.root}/runs/key/config.json", b"{}")
    pattern = "{partition}/*.txt"
    path = preset(tmp_path, corpus__input_pattern=pattern)
    with request_paths.limited_to(request_roots(settings(PRESET=path), store)):
        assert list_inputs(pattern, "day-1", store) == [f"{store.root}/day-1/a.txt"]
        assert choose_partition(load_preset(path), None, store) == "day-1"
        with pytest.raises(UserError, match="lies below none"):
            list_inputs("runs/*/config.json", "day-1", store)


def test_a_presets_tensorflow_checkpoint_passes_the_border(
    tmp_path: Path, store: StoreLayout
) -> None:
    folder = tmp_path / "google"
    folder.mkdir()
    for name in ("bert.ckpt.index", "bert.ckpt.data-00000-of-00001", "vocab.txt", "other.txt"):
        (folder / name).write_text("x")
    path = preset(tmp_path, model__init_checkpoint=str(folder / "bert.ckpt"))
    roots = request_roots(settings(PRESET=path), store)
    assert list(outside_problems(load_preset(path), roots, store)) == []
    with request_paths.limited_to(roots):
        sources.require_model(str(folder / "bert.ckpt"))
        assert request_paths.read(str(folder / "vocab.txt"), model=True) == b"x"
        for read in (
            lambda: request_paths.read(str(folder / "other.txt"), model=True),
            lambda: request_paths.read(str(folder / "vocab.txt")),
        ):
            with pytest.raises(OutsideRootsError):
                read()


# --- models


def model_folder(store: StoreLayout, *names: str) -> Path:
    folder = Path(store.root, "imports", "bert")
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).write_text("{}")
    return folder


CHECKPOINT = ("m.ckpt.index", "m.ckpt.data-00000-of-00001")


@pytest.mark.parametrize(
    "linked",
    [
        *("m.ckpt.index", "m.ckpt.data-00000-of-00001"),
        *("vocab.txt", "bert_config.json", "params.yaml", "tokenizer.json", "added_tokens.json"),
    ],
)
def test_all_that_is_read_of_a_checkpoint_has_to_lie_below_the_roots(
    store: StoreLayout, roots: RequestRoots, linked: str
) -> None:
    folder = model_folder(store, *CHECKPOINT, "vocab.txt", "bert_config.json")
    prefix = f"{folder}/m.ckpt"
    with request_paths.limited_to(roots):
        sources.require_model(prefix)
        (folder / linked).unlink(missing_ok=True)
        (folder / linked).symlink_to(f"{store.root}/../secret.txt")
        with pytest.raises(OutsideRootsError, match=linked):
            sources.require_model(prefix)
    config = with_overrides(load_preset("smoke"), {"model.init_checkpoint": prefix})
    with request_paths.limited_to(roots):
        problems = list(lineage.start_problems(config, store))
    assert any("lies below none" in line for line in problems)
    assert SECRET not in str(problems)


def test_a_linked_folder_in_a_model_is_refused(store: StoreLayout, roots: RequestRoots) -> None:
    folder = model_folder(store, "config.json", "model.safetensors")
    inner = folder / "checkpoint"
    inner.symlink_to(Path(store.root, "corpus"))
    sources.require_model(str(folder))
    with (
        request_paths.limited_to(roots),
        pytest.raises(OutsideRootsError, match="checkpoint is a link to a folder"),
    ):
        sources.require_model(str(folder))


def test_the_files_beside_a_root_are_not_its_own(store: StoreLayout, roots: RequestRoots) -> None:
    imports = f"{store.root}/imports"
    uris.write(f"{imports}/x", b"")
    uris.write(f"{imports}.index", b"")
    with request_paths.limited_to(roots), pytest.raises(OutsideRootsError):
        sources.require_model(imports)


# --- listing


@pytest.mark.parametrize("pattern", ["/{x}/..{partition}", "/{x}/{partition}", "/{partition}/*"])
def test_nothing_above_a_root_is_listed(
    store: StoreLayout, roots: RequestRoots, monkeypatch: pytest.MonkeyPatch, pattern: str
) -> None:
    for name in ("list_files", "list_details"):
        monkeypatch.setattr(uris, name, lambda folder: pytest.fail(f"{folder} was listed"))
    config = with_overrides(load_preset("smoke"), {"corpus.input_pattern": pattern})
    with request_paths.limited_to(roots):
        with pytest.raises(OutsideRootsError):
            list(find_files(pattern, store))
        with pytest.raises(ConfigError, match="OutsideRootsError"):
            choose_partition(config, None, store)
        with pytest.raises(UserError, match=r"braces|lies below"):
            list_inputs(pattern, "day-1", store)


def test_what_lies_beside_a_root_is_not_told(store: StoreLayout) -> None:
    file = f"{store.root}/corpus/only.txt"
    uris.write(f"{store.root}/corpus/secret-00001-of-00002.txt", b"")
    by_hand = RequestRoots.of(store.root, [file, f"{store.root}/corpus/a-00000-of-00002.txt"])
    with request_paths.limited_to(by_hand):
        with pytest.raises(UserError, match=r"only\.txt\.$"):
            list_inputs(file, "day-1", store)
        uris.write(f"{store.root}/corpus/a-00000-of-00002.txt", b"")
        with pytest.raises(UserError, match="1 of 2 files of a set are missing"):
            list_inputs("corpus/a-00000-of-00002.txt", "day-1", store)
    with pytest.raises(UserError, match="the folder has 3 other files"):
        list_inputs(file, "day-1", store)


# --- every reader, with a link that was put in a file's place after its path was looked at


Read = Callable[[StoreLayout, str], Any]
CONFIG = load_preset("smoke")
READ = lineage._read
WEATHER = TaskConfig(train="train.tsv")
READ_EXAMPLES = partial(read_examples, input_format="tsv", task=WEATHER, labelled=True)
HUGGING_FACE, TENSORFLOW = SourceKind.HUGGING_FACE, SourceKind.TENSORFLOW


def folder_of(uri: str) -> str:
    return uri.rpartition("/")[0]


def prefix_beside(uri: str) -> str:
    return f"{folder_of(uri)}/m.ckpt"


def prepared(uri: str) -> Any:
    """Return what is known of a task whose description names a file to predict."""
    file = SimpleNamespace(uri=uri, sha256="0" * 64)
    return SimpleNamespace(name="weather", inputs={TaskSplit.PREDICT: [file]})


READERS: dict[str, Read] = {
    "corpus/day-1/a.txt": lambda _, uri: run_inputs._why_unusable(uri, CONFIG),
    "corpus/day-2/a.txt": lambda _, uri: signing.identify(uri, CONFIG),
    "corpus/day-3/a.txt": lambda _, uri: list(TrainingText([uri], CONFIG)),
    "corpus/day-1/a.jsonl": lambda _, uri: run_inputs._why_missing(uri, "jsonl", "text"),
    "tasks/weather/task.toml": lambda store, _: load_task(store, "weather"),
    "tasks/weather/text_to_text.toml": lambda store, _: load_mixture(store, "weather"),
    "tasks/weather/train.tsv": lambda _, uri: why_unusable(uri, READ_EXAMPLES),
    "imports/t5/config.json": lambda _, uri: sizes.describe(folder_of(uri)),
    "imports/t5/spiece.model": lambda _, uri: read_sentencepiece(folder_of(uri)),
    "tasks/weather/test.tsv": lambda _, uri: inputs._sha256(uri),
    "tasks/weather/new.tsv": lambda _, uri: list(read_texts(uri, WEATHER)),
    "tasks/weather/predict.tsv": lambda _, uri: predict._own_inputs(prepared(uri)),
    "imports/vocab.txt": lambda _, uri: read_vocabulary(uri, by_request=True),
    "imports/bert.model": lambda _, uri: read_vocabulary(uri, by_request=True),
    "imports/h/config.json": lambda _, uri: describe(folder_of(uri), HUGGING_FACE, READ),
    "imports/g/bert_config.json": lambda _, uri: describe(prefix_beside(uri), TENSORFLOW, READ),
    "imports/t/params.yaml": lambda _, uri: describe(prefix_beside(uri), TENSORFLOW, READ),
    "imports/h/vocab.txt": lambda _, uri: source_vocabulary(folder_of(uri), HUGGING_FACE, READ),
    "imports/j/tokenizer.json": lambda _, uri: source_vocabulary(
        folder_of(uri), HUGGING_FACE, READ
    ),
    "imports/h/model.safetensors.index.json": lambda _, uri: sources.weight_files(
        folder_of(uri), READ
    ),
    "imports/m/model.json": lambda _, uri: model_files(folder_of(uri), READ),
    "imports/r/result.json": lambda _, uri: model_files(folder_of(uri), READ),
}


@pytest.mark.parametrize("path", READERS)
def test_what_was_opened_is_looked_at(
    store: StoreLayout, roots: RequestRoots, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    file = Path(store.root, path)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.unlink(missing_ok=True)
    file.symlink_to(f"{store.root}/../secret.txt")
    real = request_paths.require

    def looked_at_before(uri: str, *, model: bool = False) -> str:
        return uri if uri == str(file) else real(uri, model=model)

    monkeypatch.setattr(request_paths, "require", looked_at_before)
    with request_paths.limited_to(roots), pytest.raises(Exception, match="lies below none") as seen:
        READERS[path](store, str(file))
    assert SECRET not in str(seen.value)


def test_the_hash_of_a_file_that_was_changed_is_not_told(
    store: StoreLayout, roots: RequestRoots
) -> None:
    file = f"{store.root}/tasks/weather/predict.tsv"
    uris.write(file, SECRET.encode())
    with request_paths.limited_to(roots), pytest.raises(BadDataError, match="was changed") as seen:
        predict._own_inputs(prepared(file))
    assert hashlib.sha256(SECRET.encode()).hexdigest() not in str(seen.value)


def test_what_a_job_has_made_itself_is_no_request(tmp_path: Path, roots: RequestRoots) -> None:
    # An export is checked in a temporary folder, by a process that is held to the request's roots.
    (tmp_path / "vocab.txt").write_text("[PAD]\nword\n")
    (tmp_path / "config.json").write_bytes(
        json.dumps(
            dict.fromkeys(SETTINGS, 1) | {"hidden_act": "gelu", "model_type": "bert"}
        ).encode()
    )
    with request_paths.limited_to(roots):
        assert describe(str(tmp_path), HUGGING_FACE) is not None
        assert source_vocabulary(str(tmp_path), HUGGING_FACE) is not None
