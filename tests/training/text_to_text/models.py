"""Small T5 models of random weights."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.training.text_to_text.vocabularies import VOCABULARY, sentencepiece_model, sizes
from trained_models.importing.sources import SENTENCEPIECE
from trained_models.text_to_text.sizes import Form
from training.architectures.t5.text_to_text import TextToText
from training.text_to_text.folder import write_folder


def random_model(form: Form, dropout_rate: float = 0.0) -> TextToText:
    """Return a model whose distributions are far from flat, and whose texts may end."""
    model = TextToText(sizes(form), dropout_rate)
    random = np.random.default_rng(7)
    for variable in model.variables:
        shape = tuple(variable.shape)
        scale = 0.3 if len(shape) == 2 else 0.1
        mean = 0.0 if len(shape) == 2 else 1.0
        variable.assign(random.normal(mean, scale, shape).astype(np.float32))
    model.transformer.shared_embedding.embeddings.assign(
        random.normal(0.0, 1.5, (VOCABULARY + 4, 24)).astype(np.float32)
    )
    return model


def random_rows(count: int, longest: int) -> np.ndarray:
    """Return padded rows of mixed length."""
    random = np.random.default_rng(3)
    lengths = random.integers(1, longest + 1, count)
    ids = random.integers(3, VOCABULARY, (count, longest))
    return np.where(np.arange(longest) < lengths[:, None], ids, 0).astype(np.int32)


def write_model(folder: Path, form: Form) -> TextToText:
    """Write a model as a Hugging Face folder, and return it."""
    folder.mkdir(parents=True)
    model, files = random_model(form), {SENTENCEPIECE: sentencepiece_model()}
    write_folder(folder, model.sizes, model.values(), dropout_rate=0.1, files=files)
    return model
