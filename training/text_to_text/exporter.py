"""Writes a fine-tuned T5 in other projects' formats, and checks each before it is committed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import tensorflow as tf

from corpus.text.cleaning import normalize
from pipeline_store.formats import TextCheck
from trained_models.errors import BadDataError
from training.exporting.writing import HUGGING_FACE, SAVED_MODEL
from training.text_to_text.folder import require_equal, vocabulary_files, write_folder
from training.text_to_text.rows import Tokenizer
from training.text_to_text.saved_model import TEXT, StringToString, save, write_by_library
from training.text_to_text.trained import Trained

LEAST_BEAMS = 4
"""Beams of the signature beam_search, if the model itself is decoded greedily."""


@dataclass(frozen=True)
class TextExporter:
    """The :class:`training.exporting.writing.FormatWriter` of a fine-tuned T5.

    :param beams: beams of the SavedModel's signature ``beam_search``, at least 2.
    :param length_penalty: length penalty of the same signature.
    :param predictions: files with texts that a SavedModel is checked on.
    """

    trained: Trained
    beams: int
    length_penalty: float
    predictions: Sequence[str]

    @property
    def files_sha256(self) -> str:
        """Return the hash of the model's files."""
        return self.trained.files.sha256

    def reason_against(self, name: str) -> str | None:
        """Return None: every format can hold this model."""
        del name
        return None

    def write(self, name: str, folder: Path) -> TextCheck:
        """Write one format into a new folder and compare it with the model.

        :raises BadDataError: the written files do not reproduce the model.
        :raises UserError: its tasks have different normalizations, which a SavedModel cannot apply.
        """
        folder.mkdir()
        writers: dict[str, Callable[[Path], TextCheck]] = {
            HUGGING_FACE: self._hugging_face,
            SAVED_MODEL: self._saved_model,
        }
        return writers[name](folder)

    def _hugging_face(self, folder: Path) -> TextCheck:
        trained = self.trained
        values, files = trained.model().values(), vocabulary_files(trained["init_checkpoint"])
        rate = trained["dropout_rate"]
        write_folder(folder, trained.sizes, values, dropout_rate=rate, files=files)
        require_equal(folder, values)
        return TextCheck(weights=len(values), texts=0)

    def _saved_model(self, folder: Path) -> TextCheck:
        trained, model = self.trained, self.trained.model()
        vocabulary = trained.vocabulary()
        module = StringToString(model, vocabulary, trained.normalization, trained.lengths)
        save(module, folder, beams=self.beams, length_penalty=self.length_penalty)
        loaded, texts = tf.saved_model.load(str(folder)), trained.samples(self.predictions)
        for name, beams in (("greedy", 1), ("beam_search", self.beams)):
            outputs = loaded.signatures[name](**{TEXT: tf.constant(texts)})[TEXT].numpy()
            wanted = write_by_library(
                model,
                Tokenizer(vocabulary, trained.sizes),
                [normalize(trained.normalization, text) for text in texts],
                trained.lengths,
                beams=beams,
                length_penalty=self.length_penalty,
            )
            pairs = zip(outputs, wanted, strict=True)
            differing = [n for n, (one, other) in enumerate(pairs) if one.decode() != other]
            if differing:
                raise BadDataError(
                    f"{name}: of {len(texts)} texts the SavedModel writes {len(differing)} "
                    "otherwise than the model with SentencePiece's library, the first as number "
                    f"{differing[0]}."
                )
        return TextCheck(weights=0, texts=len(texts))
