"""Runs TensorBoard without TensorFlow on this machine: it starts in 1 or 2 seconds, not in 30.

Copy-paste: ``python -m local.stack.tensorboard_server --logdir .local/store/runs --port 6006``

All options of ``tensorboard`` are accepted. With ``--runs FOLDER``, a store's folder of runs, the
folder of ``--logdir`` is recreated with links that name runs by lineage, partition and date; see
:mod:`local.stack.named_runs`. It answers to names of this machine and to ``--host``; see
:mod:`training.reporting.board`.
"""

from __future__ import annotations

import argparse
import sys
import types
from pathlib import Path

from local.stack.named_runs import keep_linked
from training.reporting import board

# TensorBoard uses its own small stub of TensorFlow if this module can be imported; its build
# without TensorFlow contains it. Events are read by its data server either way.
SWITCH = "tensorboard.compat.notf"


def main() -> None:
    """Run TensorBoard with the command line's options."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--runs", type=Path)
    own, sys.argv[1:] = parser.parse_known_args()
    if own.runs is not None:
        parser.add_argument("--logdir", type=Path, required=True)
        keep_linked(
            own.runs, parser.parse_known_args(["--runs", str(own.runs), *sys.argv[1:]])[0].logdir
        )
    sys.modules[SWITCH] = types.ModuleType(SWITCH)
    board.serve()


if __name__ == "__main__":
    main()
