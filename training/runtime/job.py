"""Shared code of this package's command lines: logging, SIGTERM, exit codes, thread stacks.

The agent sends a signal to get the stack of every Python thread. The signal's handler writes the
stacks itself, in C: it needs neither the GIL nor a thread that gets to run, so a process answers
even while it hangs in another library.

Source: https://docs.python.org/3/library/faulthandler.html#faulthandler.register
"""

from __future__ import annotations

import argparse
import faulthandler
import logging
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn, TextIO

from pipeline_config import PipelineConfig, parse_config, with_overrides
from pipeline_store import uris
from pipeline_store.formats import ExitKind, PhaseName
from pipeline_store.local import NO_ROOM, UnwritableError
from trained_models.errors import JobError, PreemptedError, exit_kind_of
from training.runtime.phases import phase

log = logging.getLogger("training")
STACKS_FOLDER = "REPRETRAIN_STACKS_FOLDER"
"""Environment variable that names the folder for the stacks; without it none are written."""

# The handler writes to the descriptor for as long as the process lives.
_answers: list[TextIO] = []


class StopRequest:
    """A flag that SIGTERM sets, so that a loop can end where its state can be saved.

    Cloud TPU VMs send SIGTERM when they are preempted. Python runs signal handlers between two
    calls into TensorFlow, so one loop of steps and a save have to fit into the grace period.
    """

    def __init__(self) -> None:
        self._requested = False

    @property
    def requested(self) -> bool:
        """Return whether to stop at the next opportunity."""
        return self._requested

    def on_signal(self) -> None:
        """Take note of the signal."""
        self._requested = True
        log.info("SIGTERM received: stopping after this loop of steps.")


@contextmanager
def on_sigterm(action: Callable[[], None]) -> Iterator[None]:
    """Call the action when SIGTERM arrives; only possible in the main thread."""
    before = signal.signal(signal.SIGTERM, lambda signum, frame: action())
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def nothing_to_save(then: str) -> Callable[[], NoReturn]:
    """Return the action that ends a job at once.

    :param then: what the same command does when it is given again.
    """

    def stop() -> NoReturn:
        raise PreemptedError(f"nothing to save; the same command {then}.")

    return stop


def run_job(job: Callable[[], None], log_stream: TextIO | None = None) -> int:
    """Run a job and return its exit code; every failure is logged, with what to do about it.

    :param log_stream: where the log goes; stdout, unless results are printed there.
    """
    answer_about_stacks()
    with _log_to(log_stream or sys.stdout), phase(PhaseName.OTHER):
        try:
            job()
        except Exception as error:  # noqa: BLE001 - the process boundary: each has its exit code
            kind = exit_kind_of(error)
            _log_failure(error, kind)
            return kind.exit_code
    return ExitKind.OK.exit_code


@contextmanager
def _log_to(stream: TextIO) -> Iterator[None]:
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    # TensorFlow's imports install a root handler, which would write every line a second time.
    log.propagate = False
    try:
        yield
    finally:
        log.propagate = True
        log.removeHandler(handler)


def _log_failure(error: Exception, kind: ExitKind) -> None:
    if kind is ExitKind.FAILED:
        if not isinstance(error, UnwritableError) and getattr(error, "errno", None) in NO_ROOM:
            log.error(
                "%s. Free room there, or name a folder for temporary files that has some: TMPDIR, "
                "now %s",
                error,
                tempfile.gettempdir(),
            )
            return
        # The messages of our own errors are complete; others need their traceback.
        is_said = isinstance(error, JobError | UnwritableError)
        log.error("%s", error, exc_info=None if is_said else error)
    elif kind is ExitKind.OUT_OF_MEMORY:
        log.error(
            "Out of memory: %s. Twice the training.gradient_accumulation_steps makes the same "
            "updates in less memory (with --accept-changes where there is a checkpoint); or use a "
            "smaller global_batch_size of the section or phase that did not fit "
            "(training.global_batch_size, training.extra_global_batch_size, "
            "evaluation.global_batch_size), or a larger slice.",
            error,
        )
    elif isinstance(error, FileNotFoundError):
        log.error(
            "There is no such file: %s. Check the URI and what should have written it.", error
        )
    else:
        log.log(
            logging.INFO if kind is ExitKind.PREEMPTED else logging.ERROR, "%s: %s", kind, error
        )


def load_config(uri: str) -> PipelineConfig:
    """Read a stored ``config.json``.

    :raises FileNotFoundError: the file is missing.
    :raises ConfigError: it is damaged, of an unknown version, or breaks a rule.
    """
    return parse_config(uris.read(uri), uri)


def named(text: str) -> tuple[str, str]:
    """Return the name and the URI of an argument NAME=URI.

    :raises ArgumentTypeError: it does not have that form.
    """
    name, sign, uri = text.partition("=")
    if not (name and sign and uri):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=URI")
    return name, uri


def add_sets(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that name sets of held-out documents, and which is the run's own."""
    parser.add_argument(
        "--current-set", required=True, metavar="PARTITION", help="the set of the run's own text"
    )
    parser.add_argument(
        "--set",
        required=True,
        action="append",
        type=named,
        dest="sets",
        metavar="PARTITION=MANIFEST_URI",
        help="held-out documents to score on; give it again for more sets",
    )


def on_cpu(config: PipelineConfig) -> PipelineConfig:
    """Return the configuration for one device in float32, whatever a TPU trains in."""
    here = {
        "training.distribution_strategy": "one_device",
        "training.mixed_precision_dtype": "float32",
        "training.residual_dtype": "float32",
    }
    return with_overrides(config, here)


def answer_about_stacks() -> None:
    """Write thread stacks on SIGUSR1 to ``<pid>.txt``; the file exists once the handler is set."""
    folder = os.environ.get(STACKS_FOLDER)
    if folder is None or _answers:
        return
    aside = Path(folder, f"{os.getpid()}.aside")
    file = aside.open("w")
    _answers.append(file)
    faulthandler.register(signal.SIGUSR1, file, all_threads=True)
    aside.rename(aside.with_suffix(".txt"))
