"""Checks records of children: whether one is as requested, and whether it may be used."""

from __future__ import annotations

from pipeline_config.compression import STUDENT, CompressionConfig, steps_of
from pipeline_store.formats import ChildParent, CompressedModel
from pipeline_store.layout import ChildrenLayout
from trained_models.errors import UserError

STUDENT_SETTINGS = (
    *("layers", "num_train_epochs", "learning_rate"),
    *("teacher_weight", "temperature", "use_unlabeled"),
)
"""Settings of the section ``compression`` that a student's weights depend on."""


def require_same(
    found: CompressedModel, uri: str, parent: ChildParent, settings: CompressionConfig
) -> None:
    """Refuse a child of another parent, or one that was made or judged by other settings.

    :param found: the existing record, at ``uri``.
    :raises UserError: it is another one; the message lists every difference.
    """
    asked = settings.model_dump(mode="json", exclude={"children"})
    if STUDENT not in steps_of(found.name):
        asked = {name: value for name, value in asked.items() if name not in STUDENT_SETTINGS}
    problems = [
        f"compression.{name} was {found.settings[name]!r} and is {value!r}"
        for name, value in asked.items()
        if found.settings[name] != value
    ]
    if found.parent != parent:
        problems.append(
            f"its parent was {found.parent.weights_sha256} and is {parent.weights_sha256}"
        )
    if problems:
        folder = uri.rpartition("/")[0]
        raise UserError(
            f"{uri} is there already and was made otherwise: {'; '.join(problems)}. Restore what "
            f"differs, or delete {folder} to make it again."
        )


def find(layout: ChildrenLayout, name: str) -> CompressedModel:
    """Return a child that may be used; its files are verified when they are fetched.

    :raises UserError: there is none, or it is refused.
    :raises FormatError: its record is damaged.
    """
    place = layout.child(name)
    found = CompressedModel.load_or_none(place.record)
    if found is None:
        raise UserError(
            f"--child: there is no {place.record}; make it by training.compress --child {name}."
        )
    if not found.accepted:
        raise UserError(
            f"--child: {name} is refused and has no files. {' '.join(found.reasons)} See "
            f"{layout.page}."
        )
    return found
