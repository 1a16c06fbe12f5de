"""Time a written classifier: one padded row at a time, on one thread.

``python -m training.measure_latency --model FOLDER --length 128``

The last line of stdout is a JSON object with ``p50_ms`` and ``p95_ms``.
"""

from __future__ import annotations

import argparse
import json
import sys
import time

_USER_ERROR = 40


def main(argv: list[str] | None = None) -> int:
    """Run the command line and return the process exit code."""
    arguments = parser().parse_args(argv)
    try:
        milliseconds = measure(arguments.model, arguments.length, arguments.rows)
    except (OSError, ValueError) as error:
        sys.stderr.write(f"--model: {arguments.model} cannot be run: {error}\n")
        return _USER_ERROR
    print(json.dumps({**milliseconds, "rows": arguments.rows, "length": arguments.length}))
    return 0


def parser() -> argparse.ArgumentParser:
    """Return the command-line parser."""
    parser = argparse.ArgumentParser(
        prog="python -m training.measure_latency",
        description="Loads a SavedModel or a TensorFlow Lite folder that training.compress or "
        "training.export_classifier has written, and times it on rows of one length, one row and "
        "one thread at a time. Compare only what was measured on the same machine beside the same "
        "other work.",
        epilog="exit codes: 0 done, 40 an argument is wrong",
    )
    parser.add_argument("--model", required=True, metavar="FOLDER", help="the written model")
    parser.add_argument(
        "--length", type=_count, default=128, metavar="S", help="tokens of a row (default: 128)"
    )
    parser.add_argument(
        "--rows", type=_count, default=100, metavar="N", help="rows that are timed (default: 100)"
    )
    return parser


def _count(text: str) -> int:
    if not (text.isdecimal() and int(text) > 0):
        raise argparse.ArgumentTypeError(f"{text!r} is no number of 1 or more")
    return int(text)


def measure(folder: str, length: int, rows: int) -> dict[str, float]:
    """Return the median and the 95th percentile of the time per row, in milliseconds.

    A tenth as many rows, plus one, are run first as an untimed warm-up.

    :raises OSError: the model is missing.
    :raises ValueError: its file is damaged, or its rows have another length.
    """
    import numpy as np
    import tensorflow as tf

    # Before the first operation: otherwise TensorFlow starts one thread per core.
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    from training.finetuning.exporting.served import load

    model = load(folder)
    row = {name: np.ones([1, length], np.int32) for name in model.inputs}
    # Only segment type 0: a model may have no other.
    row |= {name: np.zeros([1, length], np.int32) for name in model.inputs if "type" in name}
    for _ in range(rows // 10 + 1):
        model.logits(row)
    seconds = []
    for _ in range(rows):
        begun = time.perf_counter()
        model.logits(row)
        seconds.append(time.perf_counter() - begun)
    p50, p95 = (1000 * float(value) for value in np.percentile(seconds, [50, 95]))
    return {"p50_ms": p50, "p95_ms": p95}


if __name__ == "__main__":
    sys.exit(main())
