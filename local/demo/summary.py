"""Collects the results of the demo's runs from the store, as tables and as JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

from pipeline_store import uris
from pipeline_store.formats import EvaluationReport, PartitionManifest, TrainingResult, Verdict
from pipeline_store.layout import RunLayout


@dataclass(frozen=True)
class Day:
    """One finished run of the demo."""

    partition: str
    run: RunLayout
    state: str
    seconds: dict[str, float]
    wall_seconds: float


@dataclass(frozen=True)
class DayResult:
    """The stored results of a run: data, training, evaluation and verdict."""

    manifest: PartitionManifest
    manifest_uri: str
    data_report: str
    training: TrainingResult
    report: EvaluationReport
    verdict: Verdict

    @property
    def row_fill(self) -> float:
        """Share of the rows' token positions that are filled."""
        places = sum(self.manifest.records.values()) * self.manifest.max_seq_length
        return sum(self.manifest.tokens.values()) / places

    @property
    def duplicates(self) -> int:
        """Number of documents dropped because an equal or similar one is used."""
        reasons = ("duplicate", "near_duplicate")
        return sum(self.manifest.dropped.get(reason, 0) for reason in reasons)


def load_result(day: Day, manifests: str) -> DayResult:
    """Read the stored results of a run.

    :param manifests: folder of the partition's manifests; the demo's lineage has one per partition.
    :raises FileNotFoundError: the run did not get as far as a verdict.
    """
    reports = uris.list_files(day.run.evaluations)
    verdicts = uris.list_files(day.run.verdicts)
    if not reports or not verdicts:
        raise FileNotFoundError(f"{day.run.root} has no verdict; the run ended {day.state}.")
    [manifest_uri] = [uri for uri in uris.list_files(manifests) if uri.endswith(".json")]
    return DayResult(
        manifest=PartitionManifest.load(manifest_uri),
        manifest_uri=manifest_uri,
        data_report=manifest_uri.removesuffix(".json") + ".html",
        training=TrainingResult.load(day.run.training.result),
        report=EvaluationReport.load(reports[-1]),
        verdict=Verdict.load(verdicts[-1]),
    )


def to_json(days: list[Day], results: list[DayResult], tpu_nodes_left: int) -> dict[str, Any]:
    """Return the summary: one value per partition under each key."""
    by_day = list(zip(days, results, strict=True))
    return {
        "documents": {day.partition: result.manifest.documents for day, result in by_day},
        "tokens": {day.partition: result.training.tokens for day, result in by_day},
        "steps": {day.partition: result.training.train_steps for day, result in by_day},
        "losses": {day.partition: _losses(result.report) for day, result in by_day},
        "verdicts": {day.partition: str(result.verdict.verdict) for day, result in by_day},
        "tpu_nodes_left": tpu_nodes_left,
        "stage_seconds": {day.partition: day.seconds for day in days},
        "run_seconds": {day.partition: round(day.wall_seconds, 1) for day in days},
        "row_fill": {day.partition: round(result.row_fill, 4) for day, result in by_day},
        "duplicates_dropped": {day.partition: result.duplicates for day, result in by_day},
        "data_reports": {day.partition: result.data_report for day, result in by_day},
        "run_keys": {day.partition: day.run.root.rpartition("/")[2] for day in days},
    }


def _losses(report: EvaluationReport) -> dict[str, dict[str, float]]:
    losses = {name: {"unigram": loss} for name, loss in report.unigram_losses.items()}
    for model in report.models:
        for score in model.sets:
            losses[score.set_name][model.name] = score.loss
    return losses


def _widest(days: list[Day]) -> int:
    return max((len(day.partition) for day in days), default=0)


def show(days: list[Day], results: list[DayResult], console: Console) -> None:
    """Print the tables."""
    runs = Table(title="Runs", title_justify="left")
    for heading in (
        *("partition", "documents", "duplicates", "row fill"),
        *("tokens trained", "steps", "verdict"),
    ):
        # Two truncated days could not be told apart.
        runs.add_column(
            heading,
            justify="left" if heading == "verdict" else "right",
            no_wrap=heading == "partition",
            min_width=_widest(days) if heading == "partition" else None,
        )
    losses = Table(title="Masked-LM loss on held-out documents (nats)", title_justify="left")
    for heading in ("after", "held-out of", "documents", "candidate", "in use before", "unigram"):
        is_day = heading in ("after", "held-out of")
        losses.add_column(
            heading,
            justify="right",
            no_wrap=is_day,
            min_width=_widest(days) if is_day else None,
        )
    for day, result in zip(days, results, strict=True):
        runs.add_row(
            day.partition,
            f"{result.manifest.documents:,}",
            f"{result.duplicates:,}",
            f"{result.row_fill:.1%}",
            f"{result.training.tokens:,}",
            f"{result.training.train_steps:,}",
            str(result.verdict.verdict),
        )
        documents = {s.set_name: len(s.document_ids) for s in result.report.models[0].sets}
        for name, row in sorted(_losses(result.report).items()):
            before = f"{row['baseline']:.3f}" if "baseline" in row else "-"
            losses.add_row(
                day.partition,
                name,
                str(documents[name]),
                f"{row['candidate']:.3f}",
                before,
                f"{row['unigram']:.3f}",
            )
    stages = Table(title="Seconds", title_justify="left")
    stages.add_column("stage")
    for day in days:
        stages.add_column(day.partition, justify="right")
    for stage in dict.fromkeys(name for day in days for name in day.seconds):
        stages.add_row(stage, *(f"{day.seconds.get(stage, 0):.1f}" for day in days))
    stages.add_row("whole run", *(f"{day.wall_seconds:.1f}" for day in days), style="bold")
    for table in (runs, losses, stages):
        console.print(table)
