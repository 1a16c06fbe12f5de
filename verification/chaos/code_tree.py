"""Makes copies of the code, either unchanged or with a fake trainer."""

from __future__ import annotations

import shutil
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]

_PACKAGES = (
    "corpus",
    "model_registry",
    "pipeline_alerts",
    "pipeline_config",
    "pipeline_store",
    "plugins",
    "tpu_agent",
    "tpu_emulator",
    "tpu_lifecycle",
    "trained_models",
    "verification/chaos",
    "verification/spending_check",
)
# The real trainer's modules that the fake one uses.
_REAL_MODULES = (
    "runtime/__init__.py",
    "runtime/job.py",
    "runtime/job_time.py",
    "runtime/phases.py",
)


def copy_tree(target: Path, *, real: bool = False) -> Path:
    """Copy the code to a folder, unless it exists, and return the folder.

    The code is not used in place also because a campaign takes long: the tested code must not
    change meanwhile.

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
    source = trainer if real else REPOSITORY / "verification" / "chaos" / "fake_training"
    shutil.copytree(source, aside / "training", ignore=ignored)
    if not real:
        for module in _REAL_MODULES:
            (aside / "training" / module).parent.mkdir(exist_ok=True)
            shutil.copy(trainer / module, aside / "training" / module)
    return aside.rename(target)
