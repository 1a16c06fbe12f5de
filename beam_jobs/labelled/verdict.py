"""Refuses a task, or warns of it, based on the counts of its conversion."""

from __future__ import annotations

from collections.abc import Iterator

from beam_jobs.labelled.label_leaks import told_by_label
from beam_jobs.labelled.outcome import SplitTotals, TaskOutcome
from corpus.errors import BadDataError
from pipeline_config import TaskConfig
from pipeline_store.formats import TaskSplit

# Above these shares a warning is given, though nothing is refused.
_WORTH_SAYING_TRUNCATED = 0.05
_WORTH_SAYING_TOLD = 0.8


class TaskRefusedError(BadDataError):
    """A task cannot be used; ``reasons`` has one line each."""

    def __init__(self, name: str, reasons: list[str], letters: str | None) -> None:
        numbered = " ".join(f"({number}) {reason}." for number, reason in enumerate(reasons, 1))
        rest = f" All unusable examples: {letters}" if letters else ""
        super().__init__(f"task {name!r} is refused. {numbered}{rest}")
        self.reasons = reasons


def refusals(outcome: TaskOutcome, task: TaskConfig, max_seq_length: int) -> Iterator[str]:
    """Yield a line for every reason why a task cannot be used."""
    yield from outcome.refusals
    if outcome.refusals:
        return
    for split, totals in outcome.totals.items():
        if totals.truncated_share > task.max_truncated_fraction:
            yield (
                f"{_truncated(split, totals)}={max_seq_length}, over "
                f"max_truncated_fraction={task.max_truncated_fraction:g}; raise one of them"
            )
    told = told_by_label(outcome.search_counts, task)
    if told is not None and told > task.max_label_in_text:
        yield (
            f"the texts give the labels away: {_told(told)}, over "
            f"max_label_in_text={task.max_label_in_text:g}. Take them out of the text, or, if that "
            "is how the texts are, set max_label_in_text to 1"
        )


def warnings(outcome: TaskOutcome, task: TaskConfig, max_seq_length: int) -> list[str]:
    """Return the warnings on a usable task."""
    found = list(outcome.warnings)
    for split, totals in outcome.totals.items():
        if totals.truncated_share > _WORTH_SAYING_TRUNCATED:
            found.append(f"{_truncated(split, totals)}={max_seq_length}")
    told = told_by_label(outcome.search_counts, task)
    if told is not None and told > _WORTH_SAYING_TOLD:
        found.append(f"the texts may give the labels away: {_told(told)}")
    return found


def _truncated(split: TaskSplit, totals: SplitTotals) -> str:
    return (
        f"{split}: {totals.truncated} of {totals.records} examples ({totals.truncated_share:.1%}) "
        "are cut to max_seq_length"
    )


def _told(told: float) -> str:
    guide = "docs/reference/finetuning-data.md"
    return f"who looks for the labels in them gets {told:.1%} right ({guide})"
