"""Compares T5 models with the library transformers: logits, stored weights, greedy and beam ids.

Logits and weights at the published sizes of t5-small and t5-base, in both forms; ids at a small
size, on rows of mixed length in padded batches. Every row of ids that differs must be a tie: the
two texts, or for greedy decoding the two tokens, have the same score within 1e-4 by the forward
pass of training.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors.numpy import load_file

from trained_models.text_to_text.sizes import EOS, SOURCE, TARGET, Form, describe
from trained_models.text_to_text.weights import read_weights, tensors

LIMIT = 1e-4
"""Largest difference of a logit, relative to the largest logit; also of the scores of a tie."""
GREEDY_SHARE, BEAM_SHARE = 0.99, 0.98
BEAMS = 4
LENGTH_PENALTIES = (1.0, 0.5)
"""On both sides a text's log-probability is divided by its token count, including ``</s>``, raised
to this power."""
_PROGRAM = Path(__file__).with_name("t5_in_transformers.py")
_BATCH = 32

Arrays = dict[str, npt.NDArray[Any]]
Sizes = dict[str, int | float]

REAL: dict[str, Sizes] = {
    "small": {"d_model": 512, "d_ff": 2048, "num_layers": 6, "num_heads": 8},
    "base": {"d_model": 768, "d_ff": 3072, "num_layers": 12, "num_heads": 12},
}
_NARROWER = {"small": {"d_ff": 1024, "num_layers": 8, "num_heads": 6}, "base": {"d_ff": 2048}}
"""Sizes in which T5 1.1 differs."""
_NOISE = 0.005
"""With 0.02 the attention of 1.1 is so sharp that the library's float32 differs from its own
float64 by half of the limit; with this value, by 8e-7."""
_DECODED: Sizes = {
    "vocab_size": 512,
    "d_model": 128,
    "d_kv": 32,
    "d_ff": 256,
    "num_layers": 2,
    "num_heads": 4,
}
DECODED: dict[Form, Sizes] = {
    "1.0": _DECODED | {"noise": 0.4, "embedding": 0.5, "end": 5.0},
    "1.1": _DECODED | {"noise": 0.2, "embedding": 1.0, "end": 3.0},
}
"""With these weights about half of the texts end, few are equal, and no token is near-certain."""


def checks(python: Path) -> Iterator[dict[str, Any]]:
    """Yield the results: ``name``, ``value``, ``limit``, ``holds``."""
    for form in ("1.0", "1.1"):
        for size, values in REAL.items():
            own = _NARROWER[size] if form == "1.1" else {}
            sizes = {"vocab_size": 32128, "d_kv": 64, "noise": _NOISE, "embedding": _NOISE}
            yield from models(form, size, {**sizes, **values, **own}, python)
        yield from ids(form, DECODED[form], python, rows=512)


def models(
    form: Form, name: str, sizes: Sizes, python: Path, *, length: int = 64
) -> Iterator[dict[str, Any]]:
    """Yield the results on logits and weights of one model, in both directions."""
    from training.architectures.t5.text_to_text import TextToText

    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch, "model")
        random = np.random.default_rng(2)
        vocabulary = int(sizes["vocab_size"])
        source = _rows(random, 4, length, vocabulary)
        target = np.maximum(_rows(random, 4, length // 2, vocabulary), 3)
        inputs: Arrays = {"source": source, "target": target}
        wanted = run(python, Path(scratch), inputs, "write", _written(form, sizes, scratch), folder)
        found = describe(str(folder))
        values = read_weights(str(folder), found)
        model = TextToText(found)
        model.set_weights_by_name(values)
        logits = model({SOURCE: source, TARGET: target}, training=False).numpy()
        yield _logits(f"t5_{form}_{name}_import_logits", logits, wanted["logits"])

        stored, kept = load_file(folder / "model.safetensors"), tensors(found, model.values())
        differing = [
            key
            for key in stored.keys() | kept.keys()
            if key not in stored or key not in kept or stored[key].tobytes() != kept[key].tobytes()
        ]
        yield _row(f"t5_{form}_{name}_weights_not_equal_after_round_trip", len(differing), 0)

        again = Path(scratch, "again")
        again.mkdir()
        _export(again, model)
        back = run(python, Path(scratch), inputs, "read", again)
        yield _logits(f"t5_{form}_{name}_export_logits", back["logits"], logits)


def ids(form: Form, sizes: Sizes, python: Path, *, rows: int) -> Iterator[dict[str, Any]]:
    """Yield the results on decoded ids of one model."""
    import tensorflow as tf

    from training.architectures.t5.text_to_text import TextToText
    from training.text_to_text.decoding import decode

    length = 16
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch, "model")
        source = _rows(np.random.default_rng(3), rows, 24, int(sizes["vocab_size"]))
        settings = np.array([length, BEAMS, *LENGTH_PENALTIES])
        inputs: Arrays = {"source": source, "settings": settings}
        wanted = run(python, Path(scratch), inputs, "write", _written(form, sizes, scratch), folder)
        found = describe(str(folder))
        model = TextToText(found)
        model.set_weights_by_name(read_weights(str(folder), found))
    for name, beams, penalty, share in (
        ("greedy", 1, 1.0, GREEDY_SHARE),
        *((f"beam_{penalty}", BEAMS, penalty, BEAM_SHARE) for penalty in LENGTH_PENALTIES),
    ):

        @tf.function
        def decoded(batch: tf.Tensor, beams: int = beams, penalty: float = penalty) -> tf.Tensor:
            return decode(model, batch, length, beams=beams, length_penalty=penalty)

        parts = [decoded(source[at : at + _BATCH]).numpy() for at in range(0, rows, _BATCH)]
        ours, theirs = np.concatenate(parts), wanted[name]
        differs = np.flatnonzero((ours != theirs).any(axis=1))
        equal = 1.0 - len(differs) / rows
        ends = float((ours == EOS).any(axis=1).mean())
        extra = {"rows": rows, "rows_that_end": ends, "distinct": len(np.unique(ours, axis=0))}
        label = f"t5_{form}_{name}_ids"
        yield {"name": label, "value": equal, "limit": share, "holds": equal >= share, **extra}
        score = _greedy_gap if beams == 1 else partial(_beam_gap, penalty=penalty)
        gaps = [score(model, source[r], ours[r], theirs[r]) for r in differs]
        yield _row(f"{label}_largest_gap_of_a_difference", max(gaps, default=0.0), LIMIT)


def _greedy_gap(model: Any, source: Any, ours: Any, theirs: Any) -> float:
    """Return the score difference of the first two tokens in which two texts differ."""
    place = int(np.argmax(ours != theirs))
    log_p = _log_p(model, source, ours)[place]
    return float(abs(log_p[ours[place]] - log_p[theirs[place]]))


def _beam_gap(model: Any, source: Any, ours: Any, theirs: Any, *, penalty: float) -> float:
    """Return the difference of two texts' scores."""
    scores = []
    for ids in (ours, theirs):
        ends = np.flatnonzero(ids == EOS)
        used = int(ends[0]) + 1 if len(ends) else len(ids)
        log_p = _log_p(model, source, ids)
        scores.append(log_p[np.arange(used), ids[:used]].sum() / used**penalty)
    return float(abs(scores[0] - scores[1]))


def _log_p(model: Any, source: Any, ids: Any) -> npt.NDArray[np.float32]:
    import tensorflow as tf

    # Tokens after the end are never used, but must not be padding, which is masked.
    target = np.where(ids == 0, EOS, ids)
    logits = model({SOURCE: source[None], TARGET: target[None]}, training=False)
    found: npt.NDArray[np.float32] = tf.nn.log_softmax(logits)[0].numpy()
    return found


def _rows(
    random: np.random.Generator, count: int, longest: int, vocabulary: int
) -> npt.NDArray[np.int32]:
    lengths = random.integers(1, longest + 1, count)
    ids = random.integers(3, vocabulary, (count, longest))
    return np.where(np.arange(longest) < lengths[:, None], ids, 0).astype(np.int32)


def _written(form: Form, sizes: Sizes, scratch: str) -> Path:
    path = Path(scratch, "sizes.json")
    own = {
        "feed_forward_proj": "relu" if form == "1.0" else "gated-gelu",
        "tie_word_embeddings": form == "1.0",
    }
    path.write_text(json.dumps(sizes | own))
    return path


def _export(folder: Path, model: Any) -> None:
    from trained_models.text_to_text.sizes import configuration
    from training.exporting.hugging_face import save_tensors, write_json

    # Without a vocabulary, as these models have none.
    write_json(folder / "config.json", configuration(model.sizes, 0.1))
    save_tensors(folder, tensors(model.sizes, model.values()))


def _logits(name: str, given: Any, wanted: Any) -> dict[str, Any]:
    return _row(name, float(np.abs(given - wanted).max() / np.abs(wanted).max()), LIMIT)


def _row(name: str, value: float, limit: float) -> dict[str, Any]:
    # A comparison with NaN is false.
    return {"name": name, "value": value, "limit": limit, "holds": value <= limit}


def run(python: Path, scratch: Path, inputs: Arrays, *arguments: str | Path) -> Arrays:
    """Return the outputs that the program in the PyTorch environment computes from inputs."""
    given, outputs = scratch / "inputs.npz", scratch / "outputs.npz"
    with given.open("wb") as file:
        np.savez(file, allow_pickle=False, **inputs)
    command = [str(python), str(_PROGRAM), *map(str, arguments), str(given), str(outputs)]
    subprocess.run(command, check=True, stdout=sys.stderr)
    return dict(np.load(outputs))
