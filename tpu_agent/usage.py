"""What the jobs on this VM say about themselves, and what they have made of its time."""

from __future__ import annotations

import logging

from pydantic import ValidationError

from pipeline_store.formats import JobUsage, Progress
from tpu_agent.state import JobFolder, JobRecord, WorkDir

_log = logging.getLogger(__name__)


def job_progress(folder: JobFolder, starts: int) -> list[Progress]:
    """Return the last word of each start of a job that said anything, oldest start first.

    A file per start, because a process counts only its own time: what an earlier one has said is
    added to it, also by an agent that has never seen that process.
    """
    found = (_progress(folder, start) for start in range(1, starts + 1))
    return [progress for progress in found if progress is not None]


def usage(work_dir: WorkDir) -> list[JobUsage]:
    """Return what each job of this VM has used, over all its starts, oldest job first.

    :raises FormatError: a record of the agent is damaged.
    """
    jobs = []
    for folder in work_dir.jobs():
        record = JobRecord.load_or_none(folder.record)
        if record is None or record.started is None:
            continue
        words = job_progress(folder, record.starts)
        jobs.append(
            JobUsage(
                job_id=folder.root.name,
                started=record.started,
                first_step=min((w.first_step for w in words if w.first_step), default=None),
                stepping_seconds=sum(word.stepping_seconds for word in words),
            )
        )
    return sorted(jobs, key=lambda job: job.started)


def steps(work_dir: WorkDir) -> frozenset[tuple[str, int, int]]:
    """Return job, start and step of every job of this VM: it changes when one makes progress.

    :raises FormatError: a record of the agent is damaged.
    """
    found = set()
    for folder in work_dir.jobs():
        record = JobRecord.load_or_none(folder.record) or JobRecord()
        for number, progress in enumerate(job_progress(folder, record.starts)):
            found.add((folder.root.name, number, progress.step))
    return frozenset(found)


def _progress(folder: JobFolder, start: int) -> Progress | None:
    path = folder.progress(start)
    try:
        return Progress.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValidationError as error:
        _log.warning("%s is not a Progress: %s", path, error)
        return None
