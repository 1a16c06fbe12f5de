"""Copies of the code; in one of them the trainer is a fake, all else is what runs in production."""

from __future__ import annotations

import shutil
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]

_PACKAGES = (
    "chaos",
    "mlm_records",
    "model_registry",
    "pipeline_config",
    "pipeline_store",
    "plugins",
    "tpu_agent",
    "tpu_emulator",
    "tpu_lifecycle",
)
# What of the trainer is free of TensorFlow and decides what counts as trained.
_REAL_MODULES = ("artifacts", "checkpoint_store", "commit", "errors", "job", "state")


def copy_tree(target: Path, *, real: bool = False) -> Path:
    """Copy the code to a folder, unless it is there, and return the folder.

    Copied and not used in place also because a campaign takes long: what it tests must not change
    meanwhile.

    :param real: keep the real trainer.
    """
    if target.exists():
        return target
    aside = target.with_name(f"{target.name}.part")
    shutil.rmtree(aside, ignore_errors=True)
    ignored = shutil.ignore_patterns("__pycache__")
    for package in _PACKAGES:
        shutil.copytree(REPOSITORY / package, aside / package, ignore=ignored)
    trainer = REPOSITORY / "training"
    source = trainer if real else REPOSITORY / "chaos" / "fake_training"
    shutil.copytree(source, aside / "training", ignore=ignored)
    if not real:
        for module in _REAL_MODULES:
            shutil.copy(trainer / f"{module}.py", aside / "training")
    return aside.rename(target)
