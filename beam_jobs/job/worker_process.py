"""Runs Beam's worker in a process of its own that ends with its launcher; started by the engine."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path

from beam_jobs.job.run_folder import exit_with_launcher
from beam_jobs.job.start_up import import_local_beam


def main() -> None:
    """Work for the launcher whose run folder is the argument, until it is done or has died."""
    exit_with_launcher(Path(sys.argv[1]))
    # After the line above, because this takes seconds.
    import_local_beam()
    from apache_beam.runners.worker import sdk_worker_main

    # The tokenizer's own threads would compete with the other workers.
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    # It warns that a folder is missing that only containers have.
    logging.getLogger(sdk_worker_main.__name__).setLevel(logging.ERROR)
    sdk_worker_main.main([])


if __name__ == "__main__":
    main()
