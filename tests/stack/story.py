"""The story of the stack's tests: a model's first days, which several of them look at."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from local.demo import tiny
from local.stack.airflow_api import DagRun
from pipeline_store import uris
from pipeline_store.layout import StoreLayout

FIRST, SECOND = "2026-01-01", "2026-01-02"
LINEAGE = "story"

# What the installation fine-tunes when a model comes into use.
FINETUNING_PRESET = f"""
extends = "finetuning_smoke"

[encoder]
lineage_id = "{LINEAGE}"
compare_with = ["start"]

[finetuning]
tasks = ["first-noun"]
max_seq_length = 32
learning_rates = [3e-3]
num_train_epochs = 12.0
global_batch_size = 16
steps_per_loop = 5
parallel_tpus = 2

[tpu]
delete_grace_seconds = 3.0
"""
FIRST_NOUN, ENDINGS = "first-noun", "endings"
LABELS = {"ako": "first", "emu": "second", "ila": "third", "oro": "fourth"}


@dataclass(frozen=True)
class FirstModel:
    """How the first run ended, and the one that its promotion started."""

    run_id: str
    tasks: dict[str, str | None]
    announced: DagRun
    """A run of the DAG ``promoted_models``."""


def settings(**more: Any) -> dict[str, Any]:
    """Return what each run of the story is asked for."""
    # Other tests prepare the same text; under masks of its own the story has its own records.
    return {"lineage": LINEAGE, "masking__random_seed": 7} | more


def write_tasks(store: StoreLayout) -> None:
    """Write two tasks in the tiny language, which differ in what is asked of its sentences."""
    _write_endings(store)
    _write_first_noun(store)


def _write_endings(store: StoreLayout) -> None:
    """How the noun of a sentence ends."""
    draw = random.Random(1)
    rows = ["text\tlabel"]
    for number in range(400):
        noun = draw.choice(tiny.NOUNS)
        rows.append(f"the {noun} {noun[::-1]}es every {number} days.\t{LABELS[noun[-3:]]}")
    task = store.task(ENDINGS)
    uris.write(uris.join(task.root, "train.tsv"), "\n".join(rows).encode())
    uris.write(task.description, b'train = "train.tsv"\n')


def _write_first_noun(store: StoreLayout) -> None:
    """Which half of the nouns the first one is of."""
    draw, half = random.Random(7), len(tiny.NOUNS) // 2
    # Every sentence once: a copy in another split would be a leak.
    pairs = draw.sample([(a, b) for a in tiny.NOUNS for b in tiny.NOUNS], 240)
    rows = ["text\tlabel"]
    for first, second in pairs:
        label = "early" if tiny.NOUNS.index(first) < half else "late"
        rows.append(f"the {first} runs every {second}.\t{label}")
    task = store.task(FIRST_NOUN)
    uris.write(uris.join(task.root, "train.tsv"), "\n".join(rows).encode())
    uris.write(task.description, b'text_column = "text"\n')
