"""The command-line handling that all data jobs share: arguments, output and exit code."""

from __future__ import annotations

import json
import logging
import os
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

from corpus.errors import (
    JOB_ERRORS,
    JobError,
    MachineError,
    UserError,
    is_of_machine,
    machine_fault,
)
from pipeline_config import ConfigError, PipelineConfig, parse_config
from pipeline_store import identity, uris
from pipeline_store.formats import ExitKind
from pipeline_store.layout import StoreLayout
from pipeline_store.local import UnwritableError

_UNWRITABLE = re.compile(rf"\b{UnwritableError.__name__}: (.+)")


@dataclass(frozen=True)
class JobArguments:
    """The checked arguments of a data job."""

    config: PipelineConfig
    store: StoreLayout
    partition: str
    pattern: str


def read_arguments(
    *, config: str | None, store: str | None, partition: str | None, pattern: str | None
) -> JobArguments:
    """Check the arguments and read the configuration file.

    :raises UserError: an argument is missing or wrong.
    :raises ConfigError: the configuration breaks a rule.
    """
    given = {"--config": config, "--store": store, "--partition": partition}
    missing = [name for name, value in given.items() if not value]
    if not (config and store and partition):
        raise UserError(f"missing {', '.join(missing)}; see --help.")
    try:
        identity.check_partition(partition)
        layout = StoreLayout(uris.for_library(uris.absolute(store)))
        settings = parse_config(uris.read(uris.absolute(config)), config)
    except FileNotFoundError as error:
        raise UserError(f"--config: {config} does not exist.") from error
    except ConfigError:
        raise
    except ValueError as error:
        raise UserError(str(error)) from error
    return JobArguments(settings, layout, partition, pattern or settings.corpus.input_pattern)


def run_cli(name: str, job: Callable[[], dict[str, Any]]) -> int:
    """Run a job and print its summary as the last line, or the reason for its failure.

    :returns: the exit code of an :class:`ExitKind`. Exceptions whose cause a user cannot remove
        propagate and end the process with a traceback.
    """
    # The tokenizer's own threads would compete with Beam's workers.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    logging.basicConfig(format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    for room in ("beam_jobs", "corpus"):
        logging.getLogger(room).setLevel(logging.INFO)
    try:
        summary = job()
    except JobError as error:
        return _fail(name, error.exit_kind, error)
    except JOB_ERRORS as error:
        return _fail(name, ExitKind.USER_ERROR, error)
    except (OSError, MemoryError) as error:
        if not is_of_machine(error):
            raise
        return _fail(name, ExitKind.FAILED, MachineError(machine_fault(error)))
    except RuntimeError as error:
        # An engine passes on an error of its workers as text.
        if (found := _UNWRITABLE.search(str(error))) is None:
            raise
        return _fail(name, ExitKind.FAILED, MachineError(found[1]))
    print(json.dumps(summary), flush=True)
    return 0


def run_alone(main: Callable[[], int]) -> NoReturn:
    """Run a command line as this process's only work, and exit with its exit code.

    The process exits without the interpreter's shutdown: waiting for idle threads of engines and
    tearing down thousands of modules takes as long as a small job.
    """
    code = main()
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)


def _fail(name: str, kind: ExitKind, error: Exception) -> int:
    lines = str(error).splitlines()
    print(f"{name}: {kind}: {' '.join(lines)}", file=sys.stderr, flush=True)
    return kind.exit_code
