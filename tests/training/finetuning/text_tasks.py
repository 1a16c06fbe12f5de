"""Fine-tuning runs on tasks of real text, prepared by the data job and trained for a moment."""

from __future__ import annotations

import json
import unicodedata
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from beam_jobs.prepare_task import prepare_task
from corpus.tokens.bpe import train_bpe
from corpus.tokens.lineage_vocabulary import create_vocabulary
from corpus.tokens.sentencepiece_tokens import train_sentencepiece
from corpus.tokens.vocabulary import Vocabulary
from corpus.tokens.wordpiece_training import train_wordpiece
from pipeline_config import FinetuningConfig, PipelineConfig
from pipeline_config.finetuning import RecipeConfig
from pipeline_config.task import TaskKind
from pipeline_store.formats import (
    EncoderSource,
    FinetuningPlan,
    FinetuningReport,
    ModelExports,
    TaskManifest,
    TaskSplit,
    TaskSummary,
    Trial,
)
from pipeline_store.layout import ExportsLayout, RunLayout, StoreLayout
from tests.corpus.real_text import docstrings
from tests.training import pretrained
from tests.training.corpora import tiny_config
from trained_models.downstream.trials import FinishedTrial

LABELS = ("alpha", "beta gamma", "Größe, 尺寸")
MARKS = ("return", "value", "object")
LENGTH = 24
TRIAL = "model.0.01.1"
OTHER_SCRIPTS = [
    "Fußgänger ÄÖÜ: „Straße“ und naïve cafés.",
    "Быстрая коричневая лиса; ёлка.",
    "日本語のテキスト、です。中文没有空格。",
    "ΟΔΥΣΣΕΥΣ και Σίσυφος, ΣΑΣ.",
    "한국어 텍스트 العربية, עברית emoji 👩\u200d👧 C++ don't.",
    "[MASK] [SEP] http://a.b/c_d?e=f&g ½ ﬁne",
]


@cache
def vocabulary(kind: str) -> Vocabulary:
    """Return a vocabulary of real text."""
    texts = [*docstrings(60_000), *OTHER_SCRIPTS]
    if kind == "sentencepiece":
        return train_sentencepiece(texts, size=600, do_lower_case=True)
    if kind == "bpe":
        return train_bpe(texts, size=600)
    return train_wordpiece(texts, size=600, do_lower_case=True)


def texts(count: int) -> list[str]:
    """Return different texts of some words each, some of them in other scripts."""
    words = " ".join(docstrings(60_000)).split()
    sizes = [5 + 7 * n % 23 for n in range(count)]
    starts = [sum(sizes[:n]) for n in range(count)]
    plain = [" ".join(words[a : a + n]) for a, n in zip(starts, sizes, strict=True)]
    scripts = [f"{one} {n}" for n, one in enumerate(OTHER_SCRIPTS * 4)]
    found = [unicodedata.normalize("NFC", text) for text in (*scripts, *plain)][:count]
    return [f"{MARKS[n % 3]} " * 3 + text for n, text in enumerate(found)]


def model_config(
    kind: str = "wordpiece", architecture: str = "bert", layers: int = 1
) -> PipelineConfig:
    """Return the settings of a small encoder; byte-level BPE is RoBERTa's."""
    settings = pretrained.SETTINGS | {
        "vocabulary__size": 600,
        "vocabulary__kind": kind,
        "vocabulary__do_lower_case": kind != "bpe",
        "model__architecture": "roberta" if kind == "bpe" else architecture,
        "model__vocab_size": 608,
        "model__max_position_embeddings": 32,
        # What several layers become is asked where a language model is exported.
        "model__num_hidden_layers": layers,
    }
    return tiny_config(**settings)


@dataclass(frozen=True)
class TextRun:
    """A finished fine-tuning run of one trial."""

    store: StoreLayout
    run: RunLayout
    task: str

    @property
    def trial_id(self) -> str:
        return f"{self.task}.{TRIAL}"

    @property
    def arguments(self) -> list[str]:
        """What every command line begins with."""
        return ["--run", self.run.root, "--store", self.store.root]


def make_store(root: Path, kind: str = "wordpiece") -> StoreLayout:
    """Return a store with a lineage's vocabulary and no model."""
    store, config = StoreLayout(str(root)), model_config(kind)
    create_vocabulary(vocabulary(kind), "a test", config, store.lineage("default"))
    return store


def write_task(
    store: StoreLayout, name: str, kind: TaskKind, *, pairs: bool = False, count: int = 90
) -> None:
    """Write a task's description and its examples as JSON lines."""
    folder = Path(store.task(name).root)
    folder.mkdir(parents=True)
    described = {"kind": kind, "max_truncated_fraction": 1.0, "test_fraction": 0.3}
    if pairs:
        described["text_pair_column"] = "second"
    lines = [f"{key} = {json.dumps(value)}\n" for key, value in described.items()]
    (folder / "task.toml").write_text("".join(lines))
    found = texts(count)
    with (folder / "train.jsonl").open("w", encoding="utf-8") as file:
        for number, text in enumerate(found):
            example: dict[str, Any] = {"text": text, "label": label(text, kind)}
            if pairs:
                example["second"] = found[(number * 7 + 1) % count]
            file.write(json.dumps(example) + "\n")


def label(text: str, kind: TaskKind) -> Any:
    """Return what the mark at the beginning of a text stands for."""
    number = MARKS.index(text.split(maxsplit=1)[0])
    if kind == "regression":
        return number - 1.0
    return LABELS[number] if kind == "classification" else list(LABELS[:number])


def train_run(
    store: StoreLayout,
    kind: TaskKind,
    *,
    key: str = "0123456789ab",
    pairs: bool = False,
    vocabulary_kind: str = "wordpiece",
    architecture: str = "bert",
    layers: int = 1,
    **recipe: Any,
) -> TextRun:
    """Prepare a task named by its kind, train one trial on it, and report."""
    from trained_models.commit import CommitGuard
    from training.finetuning.trial import TrialJob, make_strategy, train_trial
    from training.runtime.job import StopRequest

    task = kind.replace("_", "-") + ("-pairs" if pairs else "")
    write_task(store, task, kind, pairs=pairs)
    prepared = prepare_task(store, task, lineage_id="default", max_seq_length=LENGTH)
    settings = {
        "tasks": [task],
        "max_seq_length": LENGTH,
        "num_train_epochs": 12.0,
        "global_batch_size": 8,
        "eval_batch_size": 16,
        "learning_rates": [0.01],
        # One loop of steps, one checkpoint.
        "steps_per_loop": 1000,
        "evaluations_per_epoch": 0,
        "distribution_strategy": "one_device",
    }
    config = FinetuningConfig(finetuning=RecipeConfig(**settings | recipe))
    run = store.run(key)
    Path(run.root).mkdir(parents=True)
    Path(run.config).write_bytes(config.to_bytes())
    trial = Trial(
        trial_id=f"{task}.{TRIAL}", task=task, model="model", learning_rate=0.01, random_seed=1
    )
    encoder = EncoderSource(uri=None, version_id=None)
    FinetuningPlan(
        lineage_id="default",
        models={"model": encoder},
        manifests={task: prepared.manifest_uri},
        trials=[trial],
        created=datetime.now(UTC),
    ).write(run.finetuning_plan)
    model = model_config(vocabulary_kind, architecture, layers).model
    job = TrialJob(
        trial=trial,
        encoder=encoder,
        manifest_uri=prepared.manifest_uri,
        recipe=config.finetuning,
        model=model,
        tpu=config.tpu,
        store=store,
        layout=run.trial(trial.trial_id),
    )
    guard = CommitGuard.from_environment()
    strategy = make_strategy(config.finetuning, model, config.tpu)
    train_trial(job, strategy=strategy, guard=guard, stop=StopRequest())
    _report(run, trial)
    return TextRun(store, run, task)


def _report(run: RunLayout, trial: Trial) -> None:
    summary = TaskSummary(
        task=trial.task,
        model="model",
        learning_rate=trial.learning_rate,
        random_seeds=[trial.random_seed],
        best_trial=trial.trial_id,
        metrics={},
        validation={},
        majority={},
    )
    FinetuningReport(
        run_key=run.root.rpartition("/")[2],
        models={},
        tasks=[summary],
        comparisons=[],
        created=datetime.now(UTC),
    ).write(run.training_summary)


def layout_of(run: TextRun) -> ExportsLayout:
    return run.run.trial_exports(run.trial_id)


def folder_of(run: TextRun, name: str) -> Path:
    """Return the folder of an exported format."""
    layout = layout_of(run)
    return Path(layout.root, ModelExports.load(layout.record).formats[name].folder)


def manifest_path(run: TextRun) -> Path:
    (path,) = Path(run.store.task(run.task).prepared).glob("*/manifest.json")
    return path


def manifest_of(run: TextRun) -> TaskManifest:
    return TaskManifest.load(str(manifest_path(run)))


def scored_texts(run: TextRun) -> tuple[list[list[str]], npt.NDArray[Any]]:
    """Return the texts of the test examples as they are written, and what the trainer scored."""
    records = manifest_of(run).splits[TaskSplit.TEST]
    sources = manifest_path(run).parent / records.sources.path
    lines = np.frombuffer(sources.read_bytes(), "<i8").reshape(-1, 2)[:, 1]
    written = Path(run.store.task(run.task).root, "train.jsonl").read_text().splitlines()
    names = ["text", "second"] if run.task.endswith("pairs") else ["text"]
    found = [json.loads(written[line - 1]) for line in lines]
    trial = FinishedTrial.load(run.run.trial(run.trial_id))
    _, outputs = trial.predictions(TaskSplit.TEST)
    return [[example[name] for name in names] for example in found], outputs
