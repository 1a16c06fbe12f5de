"""Opens a source of weights and loads them into a model."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pipeline_config import PipelineConfig
from pipeline_config.training_schema import ModelConfig
from pipeline_store import uris
from pipeline_store.layout import StoreLayout
from trained_models.architectures.architecture import HuggingFaceForm, architecture_of, weights
from trained_models.errors import UserError
from trained_models.importing.descriptions import (
    GOOGLE_CONFIG,
    TF_MODELS_CONFIG,
    Description,
    check_description,
)
from trained_models.importing.hugging_face import HuggingFaceReader
from trained_models.importing.plan import make_plan, refuse_unfit
from trained_models.importing.readers import Reader
from trained_models.importing.sources import (
    SourceKind,
    checkpoint_files,
    local_files,
    source_kind,
    split,
    weight_files,
)
from trained_models.importing.vocabulary import plan_rows, source_vocabulary
from trained_models.loaded_weights import LoadedWeights
from trained_models.record_sources import lineage_tokens

if TYPE_CHECKING:
    import tensorflow as tf


@dataclass(frozen=True)
class InitialModel:
    """Weights to load, and the model that they are for.

    :param model: architecture of our model.
    :param vocabulary: the lineage's tokens, in order of id.
    :param is_scored: whether the model is scored as it is, instead of trained: then foreign weights
        need a masked-LM head and an embedding for each token.
    """

    uri: str
    model: ModelConfig
    vocabulary: tuple[str, ...]
    is_scored: bool = False

    def __str__(self) -> str:
        return self.uri


def initial_model(uri: str, store: StoreLayout, config: PipelineConfig) -> InitialModel:
    """Return the weights that a training with this configuration starts from.

    :raises FormatError: the lineage's vocabulary is damaged.
    """
    return InitialModel(uri, config.model, lineage_tokens(store, config))


def scored_model(uri: str, store: StoreLayout, config: PipelineConfig) -> InitialModel:
    """Return weights to be scored by a model of this configuration.

    :raises FormatError: the lineage's vocabulary is damaged.
    """
    # Scoring needs a masked-LM head even if the lineage began without one.
    model = config.model.model_copy(update={"init_encoder_only": False})
    return InitialModel(uri, model, lineage_tokens(store, config), is_scored=True)


@contextmanager
def open_reader(uri: str, kind: SourceKind, form: HuggingFaceForm) -> Iterator[Reader]:
    """Yield a reader for the tensors of foreign weights.

    :param form: form of their architecture, for a Hugging Face folder.
    :raises UserError: there are no weights, or a file that belongs to them is missing.
    :raises BadDataError: a file is damaged.
    """
    if kind is SourceKind.HUGGING_FACE:
        names = weight_files(uri)
        with local_files(uri, names) as folder:
            yield HuggingFaceReader(uri, [folder / name for name in names], form)
        return
    # Imported here: Hugging Face folders can be inspected without TensorFlow.
    from training.importing.tensorflow_checkpoints import open_checkpoint

    (folder_uri, prefix), names = split(uri), checkpoint_files(uri)
    with local_files(folder_uri, names) as folder:
        yield open_checkpoint(folder / prefix, uri, [folder / name for name in names])


def load_foreign(
    variables: dict[str, tf.Variable], initial: InitialModel, *, next_sentence: bool
) -> LoadedWeights:
    """Set variables to foreign weights, either all that the plan loads or none.

    :param variables: the model's, by name.
    :param next_sentence: whether the model has a next-sentence head.
    :raises UserError: a weight is missing, left over, of another shape, or means something else
        here; the message names it, and no weight was changed.
    :raises BadDataError: a file is damaged.
    """
    uri, model = initial.uri, initial.model
    kind = source_kind(uri)
    found = check_description(uri, kind, model)
    with open_reader(uri, kind, architecture_of(model).stored_form(model)) as reader:
        notes = [*_digests(reader), *(found or describe_shapes(reader)).notes]
        known = source_vocabulary(uri, kind)
        rows = plan_rows(known, embedding_rows(reader, model), initial.vocabulary, model.vocab_size)
        plan = make_plan(reader, model, rows, next_sentence=next_sentence)
        refuse_unfit(uri, plan.table, is_scored=initial.is_scored)
        if initial.is_scored:
            rows.refuse_random(uri)
        targets = {end: _ending(end, variables) for end in plan.table.loaded}
        values = {end: plan.value(end, reader, v.numpy) for end, v in targets.items()}
    for end, variable in targets.items():
        variable.assign(values[end])
    return plan.table._replace(notes=(*notes, *plan.table.notes))


def embedding_rows(reader: Reader, model: ModelConfig) -> int:
    """Return the number of rows of the source's embedding.

    :raises UserError: no tensor has its name, so this is another architecture.
    """
    (weight,) = [w for w in weights(model, next_sentence=False) if w.is_embedding]
    stored = reader.find(weight)
    if stored is None:
        title = architecture_of(model).title
        raise UserError(
            f"{reader.uri} has no word embeddings under a name of {title} ({weight.tensor}, "
            f"{weight.variable}) among its {len(reader.names)} tensors. Give a {title}, or rename "
            "its tensors."
        )
    return stored.shape[0]


def _digests(reader: Reader) -> list[str]:
    return [
        f"{path.name}: {path.stat().st_size:,} bytes, SHA-256 {uris.sha256(str(path))}"
        for path in reader.paths
    ]


def describe_shapes(reader: Reader) -> Description:
    """Return a description derived from the weights themselves, as they came without one.

    :raises UserError: they do not contain enough information.
    """
    warning = (
        f"WARNING: there is no {GOOGLE_CONFIG} or {TF_MODELS_CONFIG} beside the weights, so "
        "nothing tells which gelu they were trained with; model.hidden_act is taken to be right. "
        "tf-models' own is gelu_new."
    )
    return Description(reader.uri, reader.sizes(), (warning,))


def _ending(end: str, variables: dict[str, tf.Variable]) -> tf.Variable:
    (variable,) = [v for name, v in variables.items() if f"/{name}".endswith(f"/{end}")]
    return variable
