"""Defines the causes of alerts. `docs/operate/alerts.md` has a section with the name of each."""

from __future__ import annotations

import re
from collections.abc import Collection
from enum import StrEnum

DOCUMENT = "docs/operate/alerts.md"
_CLEARED = re.compile(r"\.cleared-(\d+)$")


class Cause(StrEnum):
    """The cause of an alert; these strings are stored, searched for and part of addresses."""

    TASK_FAILED = "task-failed"
    RUN_FAILED = "run-failed"
    ENDED_WITHOUT_OUTCOME = "ended-without-outcome"
    REJECTED = "rejected"
    APPROVAL_WAITING = "approval-waiting"
    OVERDUE = "overdue"
    BUDGET_HOURS = "budget-hours"
    BUDGET_CHIP_HOURS = "budget-chip-hours"
    BUDGET_PREEMPTIONS = "budget-preemptions"
    NO_TPU = "no-tpu"
    PREEMPTION_STORM = "preemption-storm"
    JOB_HUNG = "job-hung"
    RUN_STALLED = "run-stalled"
    TPU_WITHOUT_JOB = "tpu-without-job"
    PAUSED_WITH_TPU = "paused-with-tpu"
    WATCH_SILENT = "watch-silent"
    REAPER_SILENT = "reaper-silent"
    NEW_IDENTITY = "new-identity"
    QUARANTINED = "quarantined"
    BACKFILL_ENDED = "backfill-ended"
    NOTHING_NEW = "nothing-new"
    MAINTENANCE_FAILED = "maintenance-failed"
    TEST = "test"


class Severity(StrEnum):
    """How soon a person has to react; the names are those of Alertmanager's usual label."""

    CRITICAL = "critical"
    WARNING = "warning"
    INFO = "info"


SEVERITY_IN_WORDS = {
    Severity.CRITICAL: "critical: look now, a TPU may cost money for nothing",
    Severity.WARNING: "warning: look on the next working day",
    Severity.INFO: "info: nothing has to be done",
}

_CRITICAL = {
    Cause.TPU_WITHOUT_JOB,
    Cause.PAUSED_WITH_TPU,
    Cause.WATCH_SILENT,
    Cause.REAPER_SILENT,
    Cause.NEW_IDENTITY,
}
_INFO = {Cause.REJECTED, Cause.JOB_HUNG, Cause.BACKFILL_ENDED, Cause.TEST}


def severity(cause: str) -> Severity:
    """Return the severity of alerts with a cause."""
    kind = base_cause(cause)
    if kind in _CRITICAL:
        return Severity.CRITICAL
    return Severity.INFO if kind in _INFO else Severity.WARNING


RUN_FAILURES = (Cause.RUN_FAILED, Cause.ENDED_WITHOUT_OUTCOME)
"""Causes that say that a run as a whole failed. At most one is raised, and only if no failed task
was reported, so that people are not notified twice."""

FAILURES = (Cause.TASK_FAILED, *RUN_FAILURES)
"""Causes that say that a run failed."""

ENDS = (*FAILURES, Cause.REJECTED)
"""Causes that say how a run ended. After a person has cleared the run, they are raised again."""

CLEARING = (
    Cause.RUN_STALLED,
    Cause.TPU_WITHOUT_JOB,
    Cause.PAUSED_WITH_TPU,
    Cause.WATCH_SILENT,
)
"""Causes whose end is recorded. A recurrence has another detail or scope, and so a new alert."""

_UNLESS_STALE = (
    " If another model has come into use since, that is refused before anything is spent: then "
    "trigger a new run."
)

ADVICE = {
    Cause.TASK_FAILED: "Open the task's log. Remove what it names, then clear the task: what is "
    "done is not done again." + _UNLESS_STALE,
    Cause.RUN_FAILED: "Open the run and look at the first task that failed. Then clear that task, "
    "or trigger a new run.",
    Cause.ENDED_WITHOUT_OUTCOME: "Ask who ended the run (Airflow's audit log has it). If nobody "
    "did, look at the scheduler. To go on, clear the task that was interrupted.",
    Cause.REJECTED: "The model in use stays; nothing has to be done. If it happens for days, look "
    "at the text that arrives and at the losses by set.",
    Cause.APPROVAL_WAITING: "Open the link, read what the candidate has reached and answer: "
    "Approve puts it into use, Reject changes nothing.",
    Cause.OVERDUE: "Open the run: is it waiting for its lineage, for capacity or for an approval, "
    "or is it training?",
    Cause.BUDGET_HOURS: "When budget.max_hours is used up, the TPU is deleted. Let it go on, or "
    "mark the run failed; clearing reserve later renews the budget and resumes.",
    Cause.BUDGET_CHIP_HOURS: "When budget.max_chip_hours is used up, the TPU is deleted. Let it "
    "go on, or mark the run failed; clearing reserve later renews the budget and resumes.",
    Cause.BUDGET_PREEMPTIONS: "When budget.max_preemptions is used up, the run fails. Another "
    "zone, a reservation or on-demand TPUs are lost less often.",
    Cause.NO_TPU: "It is asked for again and again. If that takes too long, mark the run failed "
    "and trigger one with more tpu.zones or another type; if quota is in use, see by whom.",
    Cause.PREEMPTION_STORM: "Training resumes by itself, but slowly. Look at how the TPUs were "
    "lost; take another zone or tpu.provisioning_model if they were taken.",
    Cause.JOB_HUNG: "The job goes on from its last checkpoint by itself. Look at where it hung; if "
    "it was only slow, raise the limit of its phase in hang.* of the next run.",
    Cause.RUN_STALLED: "Look whether Airflow's scheduler and triggerer work and the DAG is not "
    "paused. If all of that is well, clear the task that should go on.",
    Cause.TPU_WITHOUT_JOB: "Look whether Airflow's scheduler works and the DAG is not paused: the "
    "run then goes on, or deletes the TPU. Else: python -m tpu_lifecycle list.",
    Cause.PAUSED_WITH_TPU: "Unpause the DAG, or mark the run as failed and unpause it: then the "
    "TPU is deleted.",
    Cause.WATCH_SILENT: "Start Airflow's scheduler, unpause the pipeline_watch DAG, and look at "
    "its newest run. Until then nobody is told of most of what goes wrong.",
    Cause.REAPER_SILENT: "Unpause the tpu_reaper DAG, or run python -m tpu_lifecycle reap --once. "
    "Until then a TPU that no run releases deletes only itself.",
    Cause.NEW_IDENTITY: "See which TPUs are rented: python -m tpu_lifecycle list. Release those of "
    "the earlier place there. If the id file was lost, nothing more has to be done.",
    Cause.QUARANTINED: "Look at the partition's text and its data report. Updates run without it; "
    "to try it again, deliver it corrected or trigger a run for it.",
    Cause.BACKFILL_ENDED: "Nothing, if everything was learned. What was rejected joins the next "
    "update by itself; for what was refused or failed before it was prepared, trigger a new run.",
    Cause.NOTHING_NEW: "Ask whoever delivers the text. If none is expected, raise "
    "REPRETRAIN_QUIET_DAYS.",
    Cause.MAINTENANCE_FAILED: "Open the DAG's newest run and look at the log of what failed.",
    Cause.TEST: "Nothing has to be done: the way to you works.",
}
"""What to do, in a sentence or two; the runbook has the rest."""


class Remedy(StrEnum):
    """The remedy for a task that the pipeline itself stopped; these strings are stored."""

    CHANGE_REQUEST = "change-request"
    NEW_RUN = "new-run"
    MEND_AND_CLEAR = "mend-and-clear"
    MEND_INPUT = "mend-input"
    CLEAR = "clear"
    WAIT_FOR_TPUS = "wait-for-tpus"
    ASK_FOR_QUOTA = "ask-for-quota"
    RESERVE_AGAIN = "reserve-again"
    LOOK_AT_JOB = "look-at-job"
    LOOK_AT_SERVICES = "look-at-services"


REMEDIES = {
    Remedy.CHANGE_REQUEST: "Change what the reason names and trigger a new run. Clearing cannot "
    "help: the run keeps its settings, and is refused again.",
    Remedy.NEW_RUN: "Trigger a new run for the partition. Clearing cannot help: another model has "
    "come into use, and what this run has trained would continue the one before.",
    Remedy.MEND_AND_CLEAR: "Do what the reason says, then clear the task." + _UNLESS_STALE,
    Remedy.MEND_INPUT: "If the reason names a file, mend or replace it, then clear the task: it is "
    "read anew. If it names a setting, trigger a new run with another value: a run keeps its "
    "settings." + _UNLESS_STALE,
    Remedy.CLEAR: "Clear the task to wait again: nothing was spent. Look at who has the lineage.",
    Remedy.WAIT_FOR_TPUS: "No TPU was free. Clear the task when some may be, or trigger a new run "
    "with more tpu.zones or another tpu.accelerator_type." + _UNLESS_STALE,
    Remedy.ASK_FOR_QUOTA: "Ask for the quota that the reason names, then clear the task; or "
    "trigger a new run in a zone, or of a kind, for which there is some." + _UNLESS_STALE,
    Remedy.RESERVE_AGAIN: "Clear the task reserve: its reservation has all budgets anew, and what "
    "was trained goes on from its last checkpoint. For a larger budget first change what the "
    "reason names." + _UNLESS_STALE,
    Remedy.LOOK_AT_JOB: "Read the end of the job's log, which says what failed. Once that is "
    "mended, clear the task." + _UNLESS_STALE,
    Remedy.LOOK_AT_SERVICES: "Look whether the store and the TPU service answer, then clear the "
    "task: what is done is not done again." + _UNLESS_STALE,
}
"""What to do about a task with a known remedy, instead of the advice for all failed tasks."""


def advice(cause: str, remedy: str = "") -> str:
    """Return what to do, by the remedy if this program knows it, else by the cause."""
    known = {str(one): text for one, text in REMEDIES.items()}
    return known.get(remedy) or ADVICE[base_cause(cause)]


def base_cause(cause: str) -> Cause:
    """Return a cause without its detail: ``task-failed`` of ``task-failed.tpu.train``.

    :raises ValueError: there is no such cause.
    """
    return Cause(cause.partition(".")[0])


def detail(cause: str) -> str:
    """Return the detail of a cause: ``tpu.train`` of ``task-failed.tpu.train.cleared-2``."""
    return uncleared(cause).partition(".")[2]


def uncleared(cause: str) -> str:
    """Return a cause without the suffix that counts how often the run was cleared."""
    return _CLEARED.sub("", cause)


def times_cleared(cause: str) -> int:
    """Return how often the run had been cleared before: 2 of ``run-failed.cleared-2``."""
    match = _CLEARED.search(cause)
    return int(match[1]) if match else 0


def is_one_of(cause: str, causes: Collection[Cause]) -> bool:
    """Return whether a cause is one of some kinds; False if only a newer program knows it."""
    try:
        return base_cause(cause) in causes
    except ValueError:
        return False


def page_address(document: str, docs_url: str = "") -> str:
    """Return the address of a documentation page: a path in the repository, or a URL.

    :param docs_url: where the documentation is served as a site.
    """
    if not docs_url:
        return document
    return f"{docs_url}/{document.removeprefix('docs/').removesuffix('.md')}.html"


def runbook(cause: str, docs_url: str = "") -> str:
    """Return the address of the documentation's section about a cause.

    :param docs_url: where the documentation is served as a site; without it the address is a path
        in the repository.
    """
    return f"{page_address(DOCUMENT, docs_url)}#{base_cause(cause)}"
