"""The training of a new masked-LM head alone, before the first update trains the whole model.

Gradients through a random head would pull an encoder away from what it knows before they say
anything about the text (Kumar et al., arXiv 2202.10054, on new heads in fine-tuning). And the
imported encoder under a trained head is the baseline that the update can be compared with.

No TensorFlow: estimates use it too.
"""

from __future__ import annotations

from pipeline_config import PipelineConfig
from trained_models.decided_steps import with_steps
from trained_models.importing.sources import SourceKind, source_kind

MOST_STEPS = 2000
"""Most steps of a new head's training if training.head_steps is empty."""
STEP_SHARE = 0.5
"""Time of a step of the head alone, as a share of one of the whole model. Estimated: one forward
pass of three passes, and the head both ways."""


def is_head_new(
    init_uri: str | None, config: PipelineConfig, *, update: bool, steps_behind: int
) -> bool:
    """Return whether a training starts from an encoder under a masked-LM head of random weights.

    :param init_uri: URI of the weights that the training starts from, resolved; None: random ones.
    :param update: whether that is the model in use of its lineage.
    :param steps_behind: steps of that model since the lineage began.
    """
    if init_uri is None or not config.model.init_encoder_only:
        return False
    return steps_behind == 0 if update else source_kind(init_uri) is not SourceKind.OURS


def head_steps(config: PipelineConfig) -> int:
    """Return the number of steps to train a new head alone; the training's own must be decided."""
    asked = config.training.head_steps
    return min(config.training.steps, MOST_STEPS) if asked is None else asked


def head_config(config: PipelineConfig) -> PipelineConfig:
    """Return the configuration with which a new head is trained alone.

    Rows, batches and rates are those of the training that follows; the encoder is frozen, and
    warm-up and checkpoints are those of :func:`trained_models.decided_steps.with_steps`.
    """
    alone = {
        "train_steps": "auto",
        "frozen_layers": config.model.num_hidden_layers,
        "extra_steps_fraction": 0.0,
        "early_stop_evaluations": 0,
    }
    frozen = config.model_copy(update={"training": config.training.model_copy(update=alone)})
    return with_steps(frozen, head_steps(config))
