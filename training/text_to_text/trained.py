"""Loads a fine-tuned T5 model: its weights, sizes and settings, as stored by its training."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from pipeline_store import uris
from trained_models import artifacts
from trained_models.artifacts import ModelFiles
from trained_models.errors import UserError
from trained_models.text_to_text.sizes import Sizes
from training.text_to_text.rows import read_sentencepiece
from training.text_to_text.setup import SETTINGS, SIZES, TASKS, RunFolder

if TYPE_CHECKING:
    from training.architectures.t5.text_to_text import TextToText

_SAMPLES = 16
_OWN_SAMPLES = ["a text", "Another one, with 3 numbers: 1 2 3.", ""]


@dataclass(frozen=True)
class Trained:
    """A fine-tuned model.

    :param files: files of its weights.
    :param settings: settings of its training; those of the recipe begin with ``text_to_text.``.
    """

    folder: RunFolder
    files: ModelFiles
    settings: dict[str, Any]

    @classmethod
    def load(cls, folder: RunFolder) -> Trained:
        """Return the model of a finished run.

        :raises UserError: there is no model, or it is not a fine-tuned T5.
        :raises FormatError: a file is damaged.
        """
        files = artifacts.model_files(folder.training.root)
        settings = artifacts.load_inputs(files).settings
        if not any(name.startswith(SIZES) for name in settings):
            raise UserError(
                f"{folder.root} is no run of training.finetune_text_to_text: its model is no T5."
            )
        return cls(folder, files, settings)

    def __getitem__(self, name: str) -> Any:
        """Return a setting of the recipe."""
        return self.settings[f"{SETTINGS}{name}"]

    @property
    def sizes(self) -> Sizes:
        """Return the sizes of the model."""
        return Sizes(**{f.name: self.settings[f"{SIZES}{f.name}"] for f in fields(Sizes)})

    @property
    def lengths(self) -> tuple[int, int]:
        """Return the maximum number of tokens of a text and of a target."""
        return self["max_source_length"], self["max_target_length"]

    @property
    def normalization(self) -> Any:
        """Return the Unicode normalization of all tasks' texts.

        :raises UserError: the tasks have different ones.
        """
        end = ".unicode_normalization"
        names = [n for n in self.settings if n.startswith(TASKS) and n.endswith(end)]
        found = sorted({str(self.settings[name]) for name in names})
        if len(found) > 1:
            raise UserError(
                f"The tasks of {self.folder.root} are normalized differently ({', '.join(found)}), "
                "and a SavedModel does the same for all texts. Fine-tune with one "
                "unicode_normalization, or export for transformers."
            )
        return found[0]

    def vocabulary(self) -> bytes:
        """Return the content of the SentencePiece model."""
        return read_sentencepiece(self["init_checkpoint"])

    def model(self) -> TextToText:
        """Return the model, without dropout."""
        from training.architectures.models import named_variables
        from training.architectures.t5.text_to_text import TextToText
        from training.model.checkpoints import load_ours

        model = TextToText(self.sizes)
        load_ours(named_variables(model), self.folder.training.root)
        return model

    def samples(self, predictions: Sequence[str]) -> list[str]:
        """Return some texts to compare models on: fixed ones, and some that it was scored on.

        :param predictions: files of JSON lines, each with a text.
        """
        found = list(_OWN_SAMPLES)
        for uri in predictions:
            lines = uris.read(uri).decode().splitlines()[:_SAMPLES]
            found += [json.loads(line)["text"] for line in lines]
        return found
