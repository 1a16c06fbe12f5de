"""TensorBoard without TensorFlow: it starts in a second or two instead of half a minute.

Copy-paste: ``python -m local.stack.tensorboard_server --logdir .local/store/runs --port 6006``

All options of ``tensorboard`` are accepted.
"""

from __future__ import annotations

import sys
import types

# TensorBoard uses a small stand-in of its own for TensorFlow when this module can be imported; its
# build without TensorFlow contains it. Events are read by its data server either way.
SWITCH = "tensorboard.compat.notf"


def main() -> None:
    """Run TensorBoard with the command line's options."""
    sys.modules[SWITCH] = types.ModuleType(SWITCH)
    from tensorboard.main import run_main  # type: ignore[import-untyped]

    run_main()


if __name__ == "__main__":
    main()
