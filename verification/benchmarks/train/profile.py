"""Shows where the time of a step goes, by kind of operation.

    python -m verification.benchmarks.train.profile [--side ours] [--shape mini] [--dtype float32]

Uses TensorFlow's or PyTorch's own profiler. Time is the wall-clock time of the thread that starts
an operation, without other operations inside it; its helper threads are not counted. TensorFlow
runs two operations at a time on two threads, so there the sum exceeds the time of the step.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from pipeline_config.command_line import command_parser
from verification.benchmarks.train.contest import SideFailedError, SideName, running
from verification.benchmarks.train.prepare import prepare
from verification.benchmarks.train.shapes import SHAPES

SIDES = ("ours", "hugging_face", "tf_models", "input_pipeline")
_WARM_UP_STEPS = 2
_SMALLEST_SHARE = 0.005


def main(argv: list[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    parser = command_parser("verification.benchmarks.train.profile", __doc__)
    parser.add_argument("--side", choices=SIDES, default="ours")
    parser.add_argument("--shape", choices=list(SHAPES), default="mini")
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32")
    parser.add_argument("--residual-dtype", choices=["float32", "bfloat16"], default="float32")
    parser.add_argument("--dropout", type=float, default=0.0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=5, help="default: 5")
    options = parser.parse_args(argv)
    name = SideName(
        options.side, options.shape, options.dtype, options.residual_dtype, options.dropout
    )
    with tempfile.TemporaryDirectory(prefix="profile-train-") as folder:
        prepare(Path(folder))
        try:
            with running(name, Path(folder), options.threads) as side:
                side.answer()
                side.ask(steps=_WARM_UP_STEPS)
                print(f"{name}\n{table(side.ask(profile=options.steps))}")
        except SideFailedError as error:
            print(error, file=sys.stderr)
            return 1
    return 0


def table(found: dict[str, float]) -> str:
    """Return a table of the kinds of operations, longest first, with their shares of the total."""
    (wall_name, wall), *others = found.items()
    total = sum(ms for _, ms in others)
    lines = [f"{wall:9.1f} ms {wall_name}", f"{total:9.1f} ms in operations"]
    for name, ms in sorted(others, key=lambda item: -item[1]):
        if ms / total >= _SMALLEST_SHARE:
            lines.append(f"{ms:9.1f} ms {ms / total:6.1%}  {name}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
