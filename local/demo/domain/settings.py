"""Settings of `make demo-domain`, which takes minutes on two cores, and its initial encoder."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

from local.commands import run_module
from local.demo.domain.text import GENERAL, GROUP
from local.stack.settings import PRESET
from pipeline_config import load_preset
from pipeline_store.layout import StoreLayout

ENCODER = "all-MiniLM-L6-v2"
STEPS = 100
RECIPE: dict[str, Any] = {
    # Sentences of the labeled task fit, and a step takes about a second on two cores.
    "masking.max_seq_length": 64,
    "masking.max_predictions_per_seq": 10,
    "corpus.group_field": GROUP,
    "corpus.validation_fraction": 0.1,
    "training.global_batch_size": 32,
    "training.train_steps": STEPS,
    "training.head_steps": STEPS,
    "training.steps_per_loop": 10,
    "training.checkpoint_interval": 50,
    # For the head alone, which is random and has nothing to forget.
    "optimizer.learning_rate": 1e-3,
    "optimizer.update_learning_rate": 1e-4,
    "optimizer.warmup_steps": 10,
    "evaluation.general_partition": GENERAL,
    "evaluation.max_records_per_set": 600,
    # A classifier on the frozen encoder: with 300 examples, full fine-tuning learns next to nothing
    # in the recipe's three epochs, and takes ten minutes.
    "promotion.probe_mode": "frozen",
    "promotion.probe_random_seeds": [1, 2, 3],
    "promotion.export_formats": ["hugging_face"],
}


def put_encoder(source: Path, store: StoreLayout) -> str:
    """Copy a model's folder to the store's imports if missing; return its path below the store.

    :param source: a Hugging Face folder.
    """
    name = f"imports/{ENCODER}"
    target = Path(store.root, name)
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        aside = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{ENCODER}."))
        shutil.copytree(source, aside, dirs_exist_ok=True)
        aside.rename(target)
    return name


def request(store: StoreLayout, encoder: str) -> dict[str, Any]:
    """Return the settings of the DAG's request: those of the model, and the recipe.

    :param encoder: its path below the store.
    """
    with tempfile.TemporaryDirectory() as scratch:
        preset = Path(scratch, "encoder.toml")
        source = str(Path(store.root, encoder))
        run_module(
            "training.import_model", source, "--extends", PRESET, "--write-preset", str(preset)
        )
        fitting = load_preset(str(preset)).model_dump(mode="json")
    usual = load_preset(PRESET).model_dump(mode="json")
    own = {
        f"{section}.{name}": value
        for section, values in fitting.items()
        if isinstance(values, dict)
        for name, value in values.items()
        if value != usual[section][name]
    }
    places = {
        "model.init_checkpoint": encoder,
        "vocabulary.uri": f"{encoder}/vocab.txt",
    }
    return own | RECIPE | places
