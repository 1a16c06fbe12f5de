"""Puts a comparison in words: its numbers, test examples in the training text, its verdict."""

from __future__ import annotations

from pipeline_config.task import MIN_JUDGED_EXAMPLES
from pipeline_store.formats import ModelComparison, PaidVerdict, TrainingTextFindings

_NAMED = 5


def sentence(found: ModelComparison) -> str:
    """Return a comparison in words."""
    numbers = (
        f"On {found.task} the {found.metric} is {found.model_mean:.4f}, that of {found.reference} "
        f"{found.reference_mean:.4f} (mean of {found.seeds} seed{'s' if found.seeds > 1 else ''}, "
        f"{found.examples} test examples): a difference of {found.difference:+z.4f} with a "
        f"{found.confidence:.0%} interval from {found.low:+z.4f} to {found.high:+z.4f}."
    )
    parts = [numbers, _in_training_text(found), _end(found)]
    return " ".join(part for part in parts if part)


def _in_training_text(found: ModelComparison) -> str:
    """Return what is known of test examples in the training text; empty if there was no search.

    It is also empty for a model that has seen no text of its lineage.
    """
    findings = found.training_text
    if findings is None or findings.partitions == []:
        return ""
    if findings.partitions is None:
        return (
            "Whether test examples lie in the training text is not known: it is not recorded what "
            "the model was trained on."
        )
    parts = [_count(found, findings), _clean(found, findings), _unknown(findings)]
    return " ".join(part for part in parts if part)


def _count(found: ModelComparison, findings: TrainingTextFindings) -> str:
    if findings.partitions is not None and len(findings.unknown) == len(findings.partitions):
        return ""
    if not findings.found:
        return (
            f"None of the {found.examples} test examples is a whole document of the training text, "
            "or similar to one; whether any is part of a longer document is not looked for."
        )
    return (
        f"{findings.found} of the {found.examples} test examples were found in the training text "
        f"({findings.exact} as they are, {findings.near} as near copies) as whole documents; parts "
        "of longer documents are not looked for."
    )


def _clean(found: ModelComparison, findings: TrainingTextFindings) -> str:
    if not findings.found:
        return ""
    others = found.examples - findings.found
    clean = findings.clean
    if clean is None:
        return f"The other {others} are too few to judge by."
    return (
        f"On the other {others} the difference is {clean.difference:+z.4f}, from {clean.low:+z.4f} "
        f"to {clean.high:+z.4f}."
    )


def _unknown(findings: TrainingTextFindings) -> str:
    parts = []
    if findings.unknown:
        parts.append(
            f"Whether test examples lie in {_named(findings.unknown)} is not known: no signatures "
            "were kept, or the task was not looked up in them."
        )
    if findings.near_unknown:
        parts.append(f"Near copies in {_named(findings.near_unknown)} are not known.")
    return " ".join(parts)


def _named(partitions: list[str]) -> str:
    shown = ", ".join(partitions[:_NAMED])
    more = len(partitions) - _NAMED
    of = f"partition{'s' if len(partitions) > 1 else ''} {shown}"
    return f"{of} and {more} more" if more > 0 else of


def _end(found: ModelComparison) -> str:
    caveat = " What another seed would change is not known from one." if found.seeds == 1 else ""
    findings = found.training_text
    if found.verdict is not PaidVerdict.NO_EVIDENCE:
        only = ""
        if findings is not None and findings.verdict is not found.verdict:
            only = " on the examples that are not in the training text"
        return f"It {found.verdict}{only}.{caveat}"
    if found.examples < MIN_JUDGED_EXAMPLES:
        return f"No evidence: fewer than {MIN_JUDGED_EXAMPLES} test examples."
    if findings is not None and findings.verdict is PaidVerdict.HELPED:
        return f"No evidence that it helped beyond the examples in the training text.{caveat}"
    half = (found.high - found.low) / 2
    return (
        "No evidence that it made a difference; one of less than "
        f"{half:.4f} would hardly be seen with so few examples and seeds.{caveat}"
    )
