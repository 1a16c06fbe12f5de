"""Updates, which continue the lineage's model in use: their settings, and the moments they carry.

No TensorFlow: checks before a run use it too.
"""

from __future__ import annotations

from collections.abc import Iterator

from pipeline_config import PipelineConfig
from pipeline_store.formats import ModelVersion, TrainingInputs
from pipeline_store.layout import StoreLayout, VersionLayout
from trained_models import artifacts
from trained_models.errors import UserError
from trained_models.record_sources import NEXT_SENTENCE_PACKING, predicts_next_sentence


def is_update(init_uri: str | None, store: StoreLayout, config: PipelineConfig) -> bool:
    """Return whether a training that starts from these weights continues its own lineage.

    :param init_uri: the value of ``--init-model``, resolved; None: it is not given.
    """
    if init_uri is None:
        return False
    folder, _, version_id = init_uri.rstrip("/").rpartition("/")
    versions = store.lineage(config.model.lineage_id).versions
    return bool(version_id) and folder == versions.rstrip("/")


def has_moments(version_uri: str) -> bool:
    """Return whether a version of a lineage was trained here; an imported one was not.

    :raises FileNotFoundError: there is no such version.
    """
    return first_epoch(version_uri, update=True) > 0


def effective_config(
    config: PipelineConfig, *, update: bool, has_moments: bool = True
) -> PipelineConfig:
    """Return the configuration with the optimizer's settings as they take effect in this training.

    In an update ``learning_rate`` is ``update_learning_rate``, if that is given. Outside of an
    update, and from a version without moments, nothing is carried. The identity of a training is
    made from these, so that settings without an effect on its weights may change, and a training
    that continues as another kind is refused.
    """
    optimizer = config.optimizer
    rate = optimizer.update_learning_rate if update else None
    acting = {
        "learning_rate": optimizer.learning_rate if rate is None else rate,
        "update_learning_rate": None,
        "carry_slots": optimizer.carry_slots and update and has_moments,
    }
    return config.model_copy(update={"optimizer": optimizer.model_copy(update=acting)})


def first_epoch(init_uri: str | None, *, update: bool) -> int:
    """Return the epoch that records begin with: 0, except for a run that continues a version.

    That version has seen the replayed records, and perhaps the new ones: a partition may be
    repeated or prepared anew. Masks and order of a record depend on its epoch. Numbered from the
    steps behind the version, the epochs of successive runs differ, and an interrupted run finds its
    own again.

    :param init_uri: weights that the training starts from; in an update a model version folder.
    :raises FormatError: the version has no readable record.
    """
    if init_uri is None or not update:
        return 0
    return ModelVersion.load(VersionLayout(init_uri).model).train_steps_total


def check_carried_slots(version_uri: str, config: PipelineConfig) -> None:
    """Refuse a version without the moments that a run of this configuration needs.

    :param version_uri: a model version folder.
    :raises UserError: its optimizer is of another type, or it has no moments of some variables.
    :raises FileNotFoundError: the version does not say how it was trained.
    """
    files = artifacts.model_files(version_uri)
    inputs = artifacts.load_inputs(files)
    if problems := list(_slot_problems(inputs, config)):
        raise UserError(
            f"optimizer.carry_slots: {version_uri} does not have the moments that are to be "
            f"carried: {'; '.join(problems)}. Use its settings, or set optimizer.carry_slots to "
            "false for this run, which then begins with zeros."
        )


def _slot_problems(inputs: TrainingInputs, config: PipelineConfig) -> Iterator[str]:
    before = inputs.settings
    if (kind := before.get("optimizer.type")) != config.optimizer.type:
        yield f"optimizer.type is {kind!r} there and {config.optimizer.type!r} here"
    frozen = before.get("training.frozen_layers")
    if isinstance(frozen, int) and frozen > config.training.frozen_layers:
        yield (
            f"training.frozen_layers is {frozen} there and {config.training.frozen_layers} here, "
            "so layers are trained that had no moments"
        )
    packing = before.get("masking.packing")
    if predicts_next_sentence(config) and packing != NEXT_SENTENCE_PACKING:
        yield (
            f"masking.packing is {packing!r} there and {config.masking.packing!r} here, so a "
            "next-sentence head is trained that had none"
        )
