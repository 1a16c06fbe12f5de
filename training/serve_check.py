"""Try out an exported classifier as a server would run it: nothing but TensorFlow and its text ops.

``python -m training.serve_check --model FOLDER --text "A text."``
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

_TEXTS = (
    "The quick brown fox jumps over the lazy dog.",
    "Füchse, 狐狸 и лисы \N{FOX FACE}!",
    "",
    "long " * 2000,
)
_SIGNATURE = "serving_default"
_USER_ERROR, _MALFORMED = 40, 41


class MalformedError(Exception):
    """The model's answer is not what the format promises."""


def main(argv: list[str] | None = None) -> int:
    """Run the command line and return the process exit code."""
    arguments = parser().parse_args(argv)
    texts = arguments.text or list(_TEXTS)
    pairs = arguments.text_pair or list(reversed(texts))
    if len(texts) != len(pairs):
        sys.stderr.write(
            f"--text-pair: {len(pairs)} second texts for {len(texts)} first ones; give as many.\n"
        )
        return _USER_ERROR
    try:
        answers = ask(arguments.model, texts, pairs)
        lines = list(read_answers(answers, len(texts)))
    except (OSError, ValueError) as error:
        sys.stderr.write(f"--model: {arguments.model} is no written model: {error}\n")
        return _USER_ERROR
    except MalformedError as error:
        sys.stderr.write(f"{arguments.model}: {error} Export the model again.\n")
        return _MALFORMED
    for text, answer in zip(texts, lines, strict=True):
        shown = text if len(text) <= 60 else f"{text[:60]}…"
        print(json.dumps({"text": shown, **answer}, ensure_ascii=False))
    return 0


def parser() -> argparse.ArgumentParser:
    """Return the command-line parser."""
    parser = argparse.ArgumentParser(
        prog="python -m training.serve_check",
        description="Loads a SavedModel that training.export_classifier has written, or a folder "
        "saved_model or tflite of training.compress, with nothing but TensorFlow and TensorFlow "
        "Text, sends it texts, and prints a JSON line for each.",
        epilog="exit codes: 0 every answer is well formed, 40 an argument is wrong, 41 an answer "
        "is not",
    )
    parser.add_argument("--model", required=True, metavar="FOLDER", help="the written model")
    parser.add_argument(
        "--text", action="append", help="give it again for more; without it, some that try a lot"
    )
    parser.add_argument(
        "--text-pair", action="append", help="second text of each, where the task has pairs"
    )
    return parser


def ask(folder: str, texts: list[str], pairs: list[str]) -> dict[str, Any]:
    """Return the model's answers as arrays by name.

    :param pairs: second texts; not sent to a model that takes only one.
    :raises OSError: the model is missing.
    :raises MalformedError: its inputs are not texts.
    """
    import tensorflow as tf

    # The import also registers the ops of the graph.
    from training.finetuning.exporting import served

    named = {"text": tf.constant(texts), "text_pair": tf.constant(pairs)}
    if served.is_lite(folder):
        lite = served.LiteModel(folder)
        _, asked = lite.tokenize.structured_input_signature
        return _as_arrays(lite.predict(**{name: named[name] for name in asked}))
    signatures = tf.saved_model.load(folder).signatures
    if _SIGNATURE not in signatures:
        raise MalformedError(f"it has no signature {_SIGNATURE!r} but {sorted(signatures)}.")
    signature = signatures[_SIGNATURE]
    _, wanted = signature.structured_input_signature
    if not set(wanted) <= set(named):
        raise MalformedError(f"it asks for {sorted(wanted)}, not for text and text_pair.")
    return _as_arrays(signature(**{name: named[name] for name in wanted}))


def _as_arrays(found: dict[str, Any]) -> dict[str, Any]:
    return {name: value.numpy() for name, value in found.items()}


def read_answers(answers: dict[str, Any], count: int) -> list[dict[str, Any]]:
    """Return a dictionary for each text: its value, or its labels and their probabilities.

    :raises MalformedError: an array is missing or has another shape, or a value is out of range.
    """
    import numpy as np

    names = set(answers)
    if names == {"values"}:
        values = answers["values"]
        if values.shape != (count,) or not np.isfinite(values).all():
            raise MalformedError(f"its values {values.shape} are not {count} finite numbers.")
        return [{"value": float(value)} for value in values]
    if names != {"labels", "probabilities", "classes"}:
        raise MalformedError(f"it answers {sorted(names)}, which no classifier of ours does.")
    labels, probabilities, classes = (answers[n] for n in ("labels", "probabilities", "classes"))
    has_many = labels.ndim == 2
    if probabilities.shape != classes.shape or len(labels) != count or len(classes) != count:
        shapes = f"{labels.shape}, {probabilities.shape} and {classes.shape}"
        raise MalformedError(f"its labels, probabilities and classes have the shapes {shapes}.")
    # A comparison with NaN is false.
    if not ((probabilities >= 0) & (probabilities <= 1)).all():
        raise MalformedError("some of its probabilities are none.")
    if not has_many and not np.allclose(probabilities.sum(axis=1), 1.0, atol=1e-4):
        raise MalformedError("the probabilities of a text do not add up to 1.")
    return [
        _answer(*row, has_many=has_many) for row in zip(labels, probabilities, classes, strict=True)
    ]


def _answer(label: Any, probabilities: Any, classes: Any, *, has_many: bool) -> dict[str, Any]:
    names = [name.decode() for name in classes]
    chosen = [name.decode() for name in label if name] if has_many else label.decode()
    unknown = set(chosen if has_many else [chosen]) - set(names)
    if unknown:
        raise MalformedError(f"it answers {sorted(unknown)}, which is none of its classes.")
    shares = {name: round(float(p), 6) for name, p in zip(names, probabilities, strict=True)}
    return {"labels" if has_many else "label": chosen, "probabilities": shares}


if __name__ == "__main__":
    sys.exit(main())
