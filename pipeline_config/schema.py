"""Every setting of a run, with its meaning, limits and default.

The trigger form, the Beam job, the trainer, the command lines, the table in
``docs/reference/config.md`` and the ``config.json`` of each model are all made from these classes
and from those of ``data_schema``, ``training_schema`` and ``rental_schema``. Rules that combine
several settings are in :mod:`pipeline_config.rules`.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from pydantic import Field

from pipeline_config.data_schema import BeamConfig, CorpusConfig, MaskingConfig, VocabularyConfig
from pipeline_config.rental_schema import BudgetConfig, HangConfig, TpuConfig
from pipeline_config.sections import Section
from pipeline_config.training_schema import (
    EvaluationConfig,
    ModelConfig,
    OptimizerConfig,
    PromotionConfig,
    TrainingConfig,
)

FORMAT_VERSION = 1
PARTITION_PATTERN = r"[a-z0-9][a-z0-9._-]{0,62}"
"""A partition is a folder name and part of keys."""

_EXTRA_ROWS = {"extra_max_seq_length", "extra_max_predictions_per_seq"}


class RunConfig(Section):
    """What this run does with the settings below."""

    dry_run: bool = Field(
        False,
        description="Check everything, write the estimate of time and cost, and end without "
        "spending or changing anything.",
    )


class PipelineConfig(Section):
    """One run's complete configuration."""

    run: RunConfig = RunConfig()
    corpus: CorpusConfig = CorpusConfig()
    vocabulary: VocabularyConfig = VocabularyConfig()
    masking: MaskingConfig = MaskingConfig()
    model: ModelConfig = ModelConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    training: TrainingConfig = TrainingConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    promotion: PromotionConfig = PromotionConfig()
    beam: BeamConfig = BeamConfig()
    tpu: TpuConfig = TpuConfig()
    budget: BudgetConfig = BudgetConfig()
    hang: HangConfig = HangConfig()

    def to_bytes(self) -> bytes:
        """Return the content of ``config.json``, which :func:`parse_config` reads."""
        head = {"format": "pipeline-config", "format_version": FORMAT_VERSION}
        return (json.dumps(head | self.model_dump(mode="json"), indent=2) + "\n").encode()

    @property
    def sha256(self) -> str:
        """Return the hash of all settings."""
        return _hash(self.model_dump(mode="json"))

    @property
    def data_settings(self) -> dict[str, dict[str, Any]]:
        """Return the settings that the bytes of a shard's records depend on, by section.

        They exclude how duplicates are found and what is held out together: the bytes depend only
        on which documents of the shard are dropped or moved, and those decisions are a separate
        part of the shard's key.
        """
        elsewhere = {"partition", "input_pattern", "max_bad_fraction"}
        duplicates = {"duplicates", "near_duplicate_threshold", "split_by"}
        return {
            "corpus": self.corpus.hashed(elsewhere | duplicates),
            "vocabulary": {"do_lower_case": self.vocabulary.do_lower_case},
            "masking": self.masking.hashed(),
        }

    @property
    def data_sha256(self) -> str:
        """Return the hash of the settings that the bytes of a shard's records depend on."""
        return _hash(self.data_settings)

    @property
    def training_settings(self) -> dict[str, dict[str, Any]]:
        """Return the settings that the trained weights depend on, by section.

        They exclude settings that only matter after a bad loss (rollbacks), that only limit
        ``train_steps``, or that belong to another training, that of a new head.
        """
        limits = {"max_passes", "max_train_steps", "head_steps"}
        # Checkpoints are already identified by the records of the partitions trained on. The choice
        # is reduced to the two values it once had, so that trainings from then can continue.
        chosen = {"partitions": "unseen" if self.training.partitions == "unseen" else "own"}
        intervals = {"checkpoint_interval", "max_to_keep", "steps_per_loop"}
        guards = {"max_rollbacks", "max_loss_increase"}
        unused = set() if self.training.extra_steps_fraction else _EXTRA_ROWS
        scored: set[str] = set()
        if self.training.keep_best or self.training.early_stop_evaluations:
            # These determine which checkpoints there are to choose from.
            scored |= {"rows_per_checkpoint", *(["pattern"] if self.evaluation.pattern else [])}
            intervals.remove("checkpoint_interval")
        return {
            "model": self.model.hashed(),
            "optimizer": self.optimizer.model_dump(mode="json"),
            "training": self.training.model_dump(mode="json", exclude=intervals | guards | limits)
            | chosen,
            "evaluation": self.evaluation.model_dump(mode="json", include=scored),
            "masking": self.masking.hashed(unused),
        }

    @property
    def training_sha256(self) -> str:
        """Return the hash of the settings that the trained weights depend on."""
        return _hash(self.training_settings)


def _hash(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
