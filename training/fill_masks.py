"""Show what models predict for a masked word in held-out sentences, side by side.

``python -m training.fill_masks --store STORE --config STORE/runs/KEY/config.json
--set 2026-01-02=MANIFEST --model before=VERSION --model after=VERSION``

The log goes to stderr, the table to stdout; with ``--json`` a JSON object instead.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from corpus.tokens.bpe_model import text_of
from corpus.tokens.vocabulary import MASK, PAD
from pipeline_config import PipelineConfig
from pipeline_config.command_line import command_parser
from pipeline_store.layout import StoreLayout
from trained_models.errors import BadDataError, UserError
from trained_models.importing.vocabulary import vocabulary_kind
from trained_models.record_sources import lineage_tokens
from training.runtime.job import load_config, named, on_cpu, run_job

if TYPE_CHECKING:
    from training.evaluation.evaluation_sets import EvaluationSet

LOOKED_AT = 400
"""Maximum number of held-out rows that sentences are chosen from."""
SHOWN = 5
_CONTEXT = 9
_SHORTEST_WORD = 5
_COMMONEST = 100
# Characters that begin a word in SentencePiece and in byte-level BPE.
_BEGINNINGS = "\u2581\u0120"

Ids = npt.NDArray[np.int32]


@dataclass(frozen=True)
class Sentence:
    """A piece of held-out text with one masked word, and each model's predictions for it.

    :ivar text: the text with ``[MASK]``.
    :ivar word: the original word.
    :ivar predictions: the most likely whole words by model, most likely first.
    """

    text: str
    word: str
    predictions: dict[str, list[str]]


@dataclass(frozen=True)
class _Place:
    """A word and its location: the row and the position in that row."""

    row: int
    position: int
    word: str


def main(argv: list[str] | None = None) -> int:
    """Run the command line and return the process exit code."""
    options = _parser().parse_args(argv)
    return run_job(lambda: fill_masks(options), log_stream=sys.stderr)


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("training.fill_masks", __doc__)
    add = parser.add_argument
    add("--store", required=True, metavar="URI", help="root of the store")
    add("--config", required=True, metavar="URI", help="a run's config.json")
    add("--set", required=True, type=named, metavar="PARTITION=MANIFEST_URI", help="held-out text")
    add(
        "--model",
        required=True,
        action="append",
        type=named,
        dest="models",
        metavar="NAME=MODEL_URI",
        help="model version folder, or training folder of a finished run; give it again for more",
    )
    add("--sentences", type=int, default=6, metavar="N", help="how many (default: %(default)s)")
    add("--json", action="store_true", help="print JSON")
    return parser


def fill_masks(options: argparse.Namespace) -> None:
    """Choose sentences, run every model on them, and print the predictions.

    :raises JobError: see :mod:`trained_models.errors`.
    """
    began = time.monotonic()
    store = StoreLayout(options.store)
    config = on_cpu(load_config(store.resolve(options.config)))
    if config.model.has_decoder:
        raise UserError(
            f"{options.config}: a T5 fills no masks, as its vocabulary has none. Compare such "
            "models by training.evaluate."
        )
    tokens = lineage_tokens(store, config)
    # Here, so that a wrong argument is reported at once and not after seconds of imports.
    from training.evaluation.evaluation_sets import open_set

    name, manifest = options.set
    chosen = open_set(name, manifest, store, config)
    rows = _unmasked_rows(chosen)
    places = choose_places(rows["input_word_ids"], tokens, options.sentences)
    if not places:
        raise BadDataError(
            f"Set {name!r} has no word to mask in {len(chosen.rows)} held-out rows: words of "
            f"{_SHORTEST_WORD} letters and {_CONTEXT} tokens around them are needed. Prepare more "
            "text."
        )
    models = {name: store.resolve(uri) for name, uri in options.models}
    found = _predict(models, config, rows, places, tokens)
    seconds = round(time.monotonic() - began, 1)
    if options.json:
        content: dict[str, Any] = {"sentences": [asdict(one) for one in found], "seconds": seconds}
        print(json.dumps(content, ensure_ascii=False))
    else:
        print("\n".join(table(found)))


def choose_places(ids: Ids, tokens: Sequence[str], count: int) -> list[_Place]:
    """Choose words of one token each, neither rare nor common, at most one per row.

    :param ids: tokens of unmasked rows, [R, S].
    :param tokens: tokens of the vocabulary, in order of id.
    :param count: maximum number of words.
    """
    often = Counter(ids.ravel().tolist())
    common = {number for number, _ in often.most_common(_COMMONEST)}
    places, words, padding = list[_Place](), set[str](), tokens.index(PAD)
    marks_words = vocabulary_kind(tokens) != "wordpiece"
    for row, numbers in enumerate(ids.tolist()):
        for position in range(_CONTEXT, len(numbers) - _CONTEXT):
            word = tokens[numbers[position]]
            is_usual = often[numbers[position]] > 1 and numbers[position] not in common
            is_usual &= word[0] in _BEGINNINGS or not marks_words
            if is_usual and word not in words and _is_word(word, tokens[numbers[position + 1]]):
                if numbers[position + _CONTEXT] == padding:
                    break
                places.append(_Place(row, position, word))
                words.add(word)
                break
        if len(places) == count:
            break
    return places


def _is_word(token: str, following: str) -> bool:
    bare = token.lstrip(_BEGINNINGS)
    is_whole = not following.startswith("##")
    if token != bare:
        is_whole = following[0] in _BEGINNINGS or not following.isalpha()
    return is_whole and bare.isalpha() and len(bare) >= _SHORTEST_WORD


def _unmasked_rows(chosen: EvaluationSet) -> dict[str, Ids]:
    """Return model inputs of a set's rows, with all tokens unmasked."""
    import tensorflow as tf

    from training.input import examples

    serialized = chosen.reader.read(chosen.rows[:LOOKED_AT])
    parsed = examples.parse(tf.constant(serialized), chosen.reader.row_format)
    features = {name: value.numpy() for name, value in parsed.items()}
    return examples.model_inputs(features | {"input_ids": examples.unmasked_ids(features)})


def _predict(
    models: dict[str, str],
    config: PipelineConfig,
    rows: dict[str, Ids],
    places: list[_Place],
    tokens: Sequence[str],
) -> list[Sentence]:
    from training.architectures.models import build_model
    from training.exporting.held_out_rows import texts_of
    from training.model.checkpoints import load_weights

    numbers = [place.row for place in places]
    batch = {name: rows[name][numbers].copy() for name in ("input_word_ids", "input_mask")}
    batch["input_type_ids"] = rows["input_type_ids"][numbers]
    batch["masked_lm_positions"] = np.array([[place.position] for place in places], np.int32)
    for number, place in enumerate(places):
        batch["input_word_ids"][number, place.position] = tokens.index(MASK)
    bare = [token.lstrip(_BEGINNINGS) for token in tokens]
    is_shown = np.array([len(token) > 1 and token.isalnum() for token in bare])
    shown = _text_of_bytes if config.vocabulary.kind == "bpe" else str
    model, found = build_model(config), dict[str, list[list[str]]]()
    for name, uri in models.items():
        load_weights(model, uri)
        logits = model(batch, training=False)["mlm_logits"].numpy()[:, 0, : len(tokens)]
        # Punctuation and word pieces are likely everywhere and say little.
        logits[:, ~is_shown] = -np.inf
        best = np.argsort(-logits, axis=1)[:, :SHOWN]
        found[name] = [[shown(tokens[token]) for token in row] for row in best.tolist()]
    around = np.stack(
        [
            batch["input_word_ids"][number, place.position - _CONTEXT : place.position + _CONTEXT]
            for number, place in enumerate(places)
        ]
    )
    texts = texts_of({"input_word_ids": around}, tokens, config.vocabulary.kind)
    return [
        Sentence(text, shown(place.word), {name: found[name][number] for name in models})
        for number, (text, place) in enumerate(zip(texts, places, strict=True))
    ]


def _text_of_bytes(token: str) -> str:
    return text_of([token]).strip()


def table(sentences: Sequence[Sentence]) -> Iterator[str]:
    """Yield readable lines: sentence, each model's words and the word; correct ones have stars."""
    for sentence in sentences:
        yield f"… {sentence.text} …"
        width = max(map(len, sentence.predictions))
        for name, words in sentence.predictions.items():
            shown = ", ".join(f"*{word}*" if word == sentence.word else word for word in words)
            yield f"    {name:<{width}}  {shown}"
        yield f"    {'was':<{width}}  {sentence.word}"


if __name__ == "__main__":
    sys.exit(main())
