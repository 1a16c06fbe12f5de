"""Formats scores and evaluation reports as text, and compares two reports."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from pipeline_store.formats import DocumentSetScore, EvaluationReport, RowScores

HEADER = (
    *("set", "documents", "tokens", "model", "loss", "perplexity", "accuracy", "MRR"),
    *("next sentence", "recall@1", "recall@10", "retrieval MRR"),
)
_ALWAYS_SHOWN = 8
UNIGRAM = "unigram"


def next_sentence_text(loss: float | None, accuracy: float | None) -> str:
    """Return next-sentence scores for a log line; nothing without next-sentence prediction."""
    if loss is None or accuracy is None:
        return ""
    return f"  next sentence {loss:.4f} ({accuracy:.1%} right)"


def table(report: EvaluationReport) -> str:
    """Return the scores of every model on every set, token-weighted, as aligned text.

    Next-sentence accuracy and the scores of retrieving the other half of a document by embeddings
    are only shown if they were measured.
    """
    rows = list(_rows(report))
    shown = [n for n in range(len(HEADER)) if n < _ALWAYS_SHOWN or any(row[n] for row in rows)]
    rows = [tuple(row[column] for column in shown) for row in (HEADER, *rows)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    return "\n".join(lines)


def _rows(report: EvaluationReport) -> Iterator[tuple[str, ...]]:
    for number, (set_name, unigram_loss) in enumerate(report.unigram_losses.items()):
        mark = " *" if set_name == report.current_set else ""
        for model in report.models:
            score = model.sets[number]
            next_sentence, retrieval = score.next_sentence_accuracy, score.retrieval
            yield (
                f"{set_name}{mark}",
                *_cells(model.name, score),
                "" if next_sentence is None else f"{next_sentence:.1%}",
                "" if retrieval is None else _fraction(retrieval.recall(1)),
                "" if retrieval is None else _fraction(retrieval.recall(10)),
                "" if retrieval is None else _fraction(retrieval.mrr),
            )
        perplexity = f"{math.exp(unigram_loss):.1f}"
        scored = (f"{set_name}{mark}", "", "", UNIGRAM, f"{unigram_loss:.4f}", perplexity)
        yield (*scored, *[""] * (len(HEADER) - len(scored)))
        for model in report.models:
            if (extra := model.sets[number].extra) is not None:
                name = f"{set_name}{mark}, rows of {extra.max_seq_length}"
                cells = (name, *_cells(model.name, extra))
                yield (*cells, *[""] * (len(HEADER) - len(cells)))


def _cells(model: str, scores: RowScores) -> tuple[str, ...]:
    """Return the cells of a model's row from the number of documents to the MRR."""
    return (
        f"{len(scores.token_counts):,}",
        f"{sum(scores.token_counts):,.0f}",
        model,
        f"{scores.loss:.4f}",
        f"{scores.perplexity:.1f}",
        f"{scores.accuracy:.1%}",
        f"{scores.mrr:.3f}",
    )


def _fraction(value: float | None) -> str:
    return "none" if value is None else f"{value:.3f}"


def made_from(report: EvaluationReport) -> dict[str, str]:
    """Return the content hash of every manifest and model that a report is based on.

    The keys are descriptions. Hashes identify content, not locations: a version has copies of its
    run's checkpoint and of the manifests.
    """
    sets = {f"set {name}": sha256 for name, sha256 in report.evaluated.items()}
    models = {f"model {model.name}": model.files_sha256 for model in report.models}
    return {"current set": report.current_set, **sets, **models}


class Differences(NamedTuple):
    """The largest difference between two reports of each kind of score.

    That of perplexity follows from the loss.
    """

    loss: float
    accuracy: float
    mrr: float
    recall: float


def largest_differences(one: EvaluationReport, other: EvaluationReport) -> Differences:
    """Return the differences of two reports: loss in nats per token, the others as fractions.

    Models are matched by name: a version's folder holds the same weights as the run that it came
    from.

    :raises ValueError: the reports are about different models, sets or documents.
    """
    if _subjects(one) != _subjects(other):
        raise ValueError("the reports are about different models, sets or documents")
    pairs = [
        pair
        for model, same in zip(one.models, other.models, strict=True)
        for mine, theirs in zip(model.sets, same.sets, strict=True)
        for pair in zip(_scores(mine), _scores(theirs), strict=True)
    ]
    unigram = [abs(loss - other.unigram_losses[name]) for name, loss in one.unigram_losses.items()]
    loss, accuracy, mrr = (
        max(abs(mine[column] - theirs[column]) for mine, theirs in pairs) for column in range(3)
    )
    return Differences(max(loss, *unigram), accuracy, mrr, _recall_difference(one, other))


def _scores(score: DocumentSetScore) -> list[tuple[float, float, float]]:
    parts: list[RowScores] = [score, *filter(None, [score.extra])]
    return [(part.loss, part.accuracy, part.mrr) for part in parts]


def _recall_difference(one: EvaluationReport, other: EvaluationReport) -> float:
    """Return the largest difference in recall@1 where both have it: older reports have none."""
    pairs = [
        (mine.recall_at_1, theirs.recall_at_1)
        for model, same in zip(one.models, other.models, strict=True)
        for mine, theirs in zip(model.sets, same.sets, strict=True)
    ]
    measured = [(a, b) for a, b in pairs if a is not None and b is not None]
    return max((abs(a - b) for a, b in measured), default=0.0)


def _subjects(report: EvaluationReport) -> list[object]:
    subjects: list[object] = [
        (model.name, score.set_name, score.document_ids, score.extra and score.extra.max_seq_length)
        for model in report.models
        for score in model.sets
    ]
    return [*subjects, report.partition, sorted(report.unigram_losses)]
