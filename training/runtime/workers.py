"""Reads the machines of a training from ``TF_CONFIG`` and recognizes the loss of one of them.

Nothing here needs TensorFlow: it is called before TensorFlow is imported.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from pipeline_config import PipelineConfig
from trained_models.errors import JobError, LostWorkerError, UserError, is_out_of_memory

_TASK = re.compile(r"/task:(\d+)")
# The text before the first of several errors.
_ROOT_ERRORS = re.compile(r"^.*\d+ root error\(s\) found\.\s*(\(0\))?", re.DOTALL)
# Errors of TensorFlow when another machine does not answer; by name, as for lack of memory.
_ERRORS_OF_OTHERS = ("UnavailableError", "AbortedError", "DeadlineExceededError")
_ABORTED = "Collective ops is aborted by"
# The service that worker 0 runs for all of them.
_COORDINATOR = "/tensorflow.CoordinationService/"


@dataclass(frozen=True)
class Cluster:
    """The machines that a training may use, each as HOST:PORT, and which of them this is."""

    workers: tuple[str, ...] = ()
    index: int = 0

    @classmethod
    def from_environment(cls) -> Cluster:
        """Return the machines of ``TF_CONFIG``; without it there is this machine alone.

        Source: https://www.tensorflow.org/guide/distributed_training#TF_CONFIG

        :raises UserError: it does not name machines as "worker" and nothing else.
        """
        text = os.environ.get("TF_CONFIG")
        if not text:
            return cls()
        try:
            found = json.loads(text)
            workers, task = dict(found["cluster"]), found["task"]
            index, kind = int(task["index"]), task["type"]
        except (ValueError, KeyError, TypeError) as error:
            raise UserError(f"TF_CONFIG is {text!r}; {_WANTED}") from error
        if set(workers) != {"worker"} or kind != "worker":
            raise UserError(f"TF_CONFIG names {sorted(workers)}, this one as {kind!r}; {_WANTED}")
        if not 0 <= index < len(workers["worker"]):
            raise UserError(
                f"TF_CONFIG says that this is worker {index}, but names "
                f"{len(workers['worker'])} workers, counted from 0; {_WANTED}"
            )
        return cls(tuple(workers["worker"]), index)

    def name(self, index: int) -> str:
        """Return a machine's name for messages."""
        return f"worker {index} ({self.workers[index]})"


_WANTED = (
    'it has to be {"cluster": {"worker": ["HOST:PORT", ...]}, "task": {"type": "worker", '
    '"index": N}}, with the same list on each machine.'
)


def takes_part(config: PipelineConfig) -> bool:
    """Return whether this machine trains.

    Only ``multi_worker_mirrored`` trains on each machine. With any other strategy worker 0 does,
    alone or with the chips that the others lend it: :mod:`training.runtime.slices`.

    :raises UserError: ``TF_CONFIG`` is wrong.
    """
    joined = config.training.distribution_strategy == "multi_worker_mirrored"
    return joined or Cluster.from_environment().index == 0


@contextmanager
def naming_lost_workers() -> Iterator[None]:
    """Turn TensorFlow's errors about a lost machine into one error that names the machine.

    :raises LostWorkerError: a machine of this training is gone.
    """
    try:
        yield
    except JobError:
        raise
    except Exception as error:
        cluster = Cluster.from_environment()
        if len(cluster.workers) < 2 or not _is_of_another(error):
            raise
        raise LostWorkerError(_describe(str(error), cluster)) from error


def _is_of_another(error: Exception) -> bool:
    if is_out_of_memory(error):
        return False
    return type(error).__name__ in _ERRORS_OF_OTHERS or _ABORTED in str(error)


def _describe(text: str, cluster: Cluster) -> str:
    others = [index for index in range(len(cluster.workers)) if index != cluster.index]
    named = {int(number) for number in _TASK.findall(text)}
    if _COORDINATOR in text and not named:
        named = {0}
    lost = [index for index in others if index in named]
    names = " and ".join(map(cluster.name, lost or others))
    reason = _ROOT_ERRORS.sub("", text.partition(f"{_ABORTED}:")[2] or text)
    return (
        f"{names} {'was lost' if lost else 'cannot be reached'}, and {cluster.name(cluster.index)} "
        f"cannot go on alone: {reason.strip().splitlines()[0]} Start all machines again; the "
        "job goes on from what it has saved."
    )
