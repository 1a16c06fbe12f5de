"""Plans what happens to every weight of a source: loaded, new, dropped, or of another shape."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pipeline_config.training_schema import ModelConfig
from trained_models.architectures.architecture import weights
from trained_models.errors import UserError
from trained_models.importing.readers import Reader, StoredTensor
from trained_models.importing.vocabulary import Rows
from trained_models.loaded_weights import LoadedWeights
from trained_models.weight_names import Layout, Part, Weight

NO_HEAD = (
    "It is an encoder without a masked-LM head. To begin with a new head on purpose, set "
    "model.init_encoder_only=true: the first training then trains the head alone before the whole "
    "model (training.head_steps)."
)
"""The advice on weights without a head, if they are to be trained from."""
# Parts that a source may lack: nothing but next-sentence prediction uses them.
_OPTIONAL = {Part.POOLER, Part.NEXT_SENTENCE}


class Plan(NamedTuple):
    """The source of each weight, and the table of what happens to it.

    :param sources: sources of the weights that are loaded, by the ends of variables' names.
    :param strangers: names of tensors that have no place here. Only how many there are is in the
        table, which goes into logs: they are content of somebody's file.
    """

    sources: Mapping[str, tuple[Weight, StoredTensor]]
    rows: Rows
    table: LoadedWeights
    strangers: tuple[str, ...]

    def value(
        self, variable: str, reader: Reader, initial: Callable[[], npt.NDArray[np.float32]]
    ) -> npt.NDArray[np.float32]:
        """Return the value that a variable is set to.

        :param initial: returns its random weights, for tokens that the source does not know.
        :raises BadDataError: the source is damaged.
        """
        weight, stored = self.sources[variable]
        value = reader.read(weight, stored)
        return self.rows.apply(value, initial()) if weight.is_by_token else value


def make_plan(reader: Reader, model: ModelConfig, rows: Rows, *, next_sentence: bool) -> Plan:
    """Match the tensors of a source with the weights of a model.

    :param model: the architecture here; with ``init_encoder_only`` the masked-LM head of the source
        is not used.
    :param next_sentence: whether the model here has a next-sentence head.
    """
    wanted = weights(model, next_sentence=True)
    found = {weight: stored for weight in wanted if (stored := reader.find(weight))}
    used = {w for w in found if _is_used(w, model, next_sentence=next_sentence)}
    here = [w for w in wanted if w.part is not Part.NEXT_SENTENCE or next_sentence]
    mismatched = {w: line for w in used if (line := _mismatch(w, found[w], rows))}

    strangers = sorted(reader.names - {stored.name for stored in found.values()})
    counted = [f"{len(strangers)} tensors that have no place here"] if strangers else []
    unused = {w.variable for w in found.keys() - used}
    new = [w for w in here if w not in used]
    allowed = {w.variable for w in new if _may_be_new(w, found, model)}
    notes = [*reader.notes, *rows.sentences(), *_notes(new, allowed)]
    if model.init_encoder_only:
        allowed |= {*counted, *unused}
    table = LoadedWeights(
        loaded=sorted(w.variable for w in used - mismatched.keys()),
        new=sorted(w.variable for w in new),
        dropped=[*sorted(unused), *counted],
        mismatched=sorted(mismatched.values()),
        allowed=frozenset(allowed),
        notes=tuple(notes),
    )
    sources = {w.variable: (w, found[w]) for w in used - mismatched.keys()}
    return Plan(sources, rows, table, tuple(strangers))


def _is_used(weight: Weight, model: ModelConfig, *, next_sentence: bool) -> bool:
    if weight.part is Part.NEXT_SENTENCE:
        return next_sentence
    return weight.part is not Part.MASKED_LM or not model.init_encoder_only


def _may_be_new(weight: Weight, found: Mapping[Weight, StoredTensor], model: ModelConfig) -> bool:
    """Return whether a weight may be new: its part may, but only as a whole."""
    if weight.part is Part.MASKED_LM and model.init_encoder_only:
        return True
    return weight.part in _OPTIONAL and not any(other.part is weight.part for other in found)


def _notes(new: list[Weight], allowed: set[str]) -> list[str]:
    parts = {weight.part for weight in new if weight.variable in allowed}
    notes = []
    if Part.MASKED_LM in parts:
        notes.append(
            "model.init_encoder_only: the masked-LM head is new. Its loss begins high, near that "
            "of guessing, although the encoder knows the language. The first training trains the "
            "head alone before the whole model (training.head_steps)."
        )
    if Part.POOLER in parts:
        notes.append("There is no pooler: it is new, which matters for next sentences only.")
    return notes


def _mismatch(weight: Weight, stored: StoredTensor, rows: Rows) -> str | None:
    """Return what is wrong with a tensor's shape, if anything."""
    expected = stored_shape(weight, stored.layout, rows.size)
    if stored.shape == expected:
        return None
    return f"{weight.variable}: {list(stored.shape)} in the source, {list(expected)} is needed here"


def stored_shape(weight: Weight, layout: Layout, rows: int) -> tuple[int, ...]:
    """Return the shape that a weight has in a source.

    :param rows: rows of the source's embedding. The number of tokens may differ, because they are
        matched one by one.
    """
    expected = layout.shape(weight)
    return (rows, *expected[1:]) if weight.is_by_token else expected


def refuse_unfit(uri: str, table: LoadedWeights, *, is_scored: bool = False) -> None:
    """Stop unless every weight is accounted for.

    :param is_scored: whether the weights are to be scored as they are, instead of trained from.
    :raises UserError: some are not; the message has the whole table and what to do.
    """
    if table.fits:
        return
    advise = _advice_on_scoring if is_scored else _advice_on_training
    raise UserError(f"{uri} does not fit the configured model: {table}\n{advise(uri, table)}")


def _advice_on_scoring(_uri: str, table: LoadedWeights) -> str:
    if _lacks_the_head_alone(table):
        return (
            "It is an encoder without a masked-LM head, so it predicts nothing that could be "
            "scored. Give the checkpoint with its head (such as BertForMaskedLM), or "
            "train from it with model.init_encoder_only=true and score what comes out."
        )
    return "Only a masked language model of the run's architecture can be scored; give another one."


def _advice_on_training(uri: str, table: LoadedWeights) -> str:
    if _lacks_the_head_alone(table):
        return NO_HEAD
    if _missing(table) or table.mismatched:
        return (
            "Choose a model of the same architecture, or set the model section to that of this one."
        )
    return (
        "Tensors that have no place here are dropped on purpose only: with "
        "model.init_encoder_only=true the encoder alone is loaded. `python -m "
        f"training.import_model {uri}` names them."
    )


def _missing(table: LoadedWeights) -> list[str]:
    return [name for name in table.unexpected if name in table.new]


def _lacks_the_head_alone(table: LoadedWeights) -> bool:
    missing = _missing(table)
    has_head = any(map(_is_of_head, table.loaded))
    return bool(missing) and all(map(_is_of_head, missing)) and not (has_head or table.mismatched)


def _is_of_head(name: str) -> bool:
    return name.startswith("cls/predictions/")
