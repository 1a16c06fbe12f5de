"""TensorBoard without TensorFlow: it starts in a second or two instead of half a minute.

Copy-paste: ``python -m local_stack.tensorboard_server --logdir .local/store/runs --port 6006``

All options of ``tensorboard`` are accepted.
"""

from __future__ import annotations

import sys
import types

# TensorBoard takes its own small stand-in for TensorFlow when this module can be imported; the
# package without TensorFlow ships it. Reading events is done by its data server either way.
sys.modules["tensorboard.compat.notf"] = types.ModuleType("tensorboard.compat.notf")


def main() -> None:
    """Run TensorBoard with the command line's options."""
    from tensorboard.main import run_main  # type: ignore[import-untyped]

    run_main()


if __name__ == "__main__":
    main()
