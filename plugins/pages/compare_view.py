"""Collects what the page *Compare* shows: curves, results and settings of runs side by side."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from operator import attrgetter

from pages import formatting
from pages.charts import LineChart, Point, Series, line_chart
from pages.curves import NATS, STEP, losses, metric_records
from pages.reading import Reader
from pages.settings_view import SettingRow, differing
from pages.spending import Spending, spending
from pipeline_config import PipelineConfig, parse_config
from pipeline_store import identity, uris
from pipeline_store.formats import (
    ModelVersion,
    RunOutcome,
    RunPlan,
    RunRecord,
    TrainingResult,
    Verdict,
)
from pipeline_store.layout import LineageLayout, RunLayout, StoreLayout, VersionLayout
from trained_models import metric_files

MOST_RUNS = 5
"""Most runs that are compared: more lines cannot be told apart in one chart."""
MOST_OFFERED = 50
"""Newest runs that can be chosen; a limit, so that old runs do not slow the page down."""

STYLES = "abcde"
"""Classes of the style sheet, one per run."""

_RUN_KEY = re.compile(r"[0-9a-f]{12}")


@dataclass
class ComparedRun:
    """One run; for a run that retention has removed, what its version still holds."""

    run_key: str
    style: str
    label: str
    version_id: str | None
    """The version that it published, if it still exists."""
    record: RunRecord | None
    config: PipelineConfig | None
    plan: RunPlan | None
    result: TrainingResult | None
    verdict: Verdict | None
    outcome: RunOutcome | None
    spending: Spending | None
    training: list[Point]
    held_out: list[Point]

    @property
    def state(self) -> str:
        """Its outcome or state, in a word."""
        if self.outcome is not None:
            return self.outcome.outcome
        return "under way" if self.is_open else "published"

    @property
    def is_open(self) -> bool:
        """Whether the run has not ended, so that its curves still grow."""
        return self.outcome is None and self.record is not None


@dataclass(frozen=True)
class Offer:
    """A run that can be chosen."""

    record: RunRecord
    state: str
    chosen: bool


@dataclass
class CompareView:
    """Some runs side by side."""

    lineage_id: str
    runs: list[ComparedRun] = field(default_factory=list)
    charts: list[LineChart] = field(default_factory=list)
    numbers: list[SettingRow] = field(default_factory=list)
    settings: list[SettingRow] = field(default_factory=list)
    offers: list[Offer] = field(default_factory=list)
    """Runs of the lineage that can be chosen, newest first."""
    not_found: list[str] = field(default_factory=list)
    too_many: bool = False
    problems: list[str] = field(default_factory=list)


def compare_view(store: StoreLayout, lineage_id: str, run_keys: Sequence[str]) -> CompareView:
    """Return some pretraining runs of a lineage side by side, in the order asked for.

    :param run_keys: keys of runs; others than those of the lineage's runs are reported as not
        found. Only text in the form of a key is used as a path.
    """
    reader = Reader()
    view = CompareView(lineage_id, problems=reader.problems)
    wanted = list(dict.fromkeys(run_keys))
    view.too_many = len(wanted) > MOST_RUNS
    for run_key in wanted[:MOST_RUNS]:
        style = STYLES[len(view.runs)]
        found = _compared(store, lineage_id, run_key, style, reader)
        if found is None:
            view.not_found.append(run_key)
        else:
            view.runs.append(found)
    view.charts = [
        chart
        for chart in (
            _chart("Masked-LM loss while training", view.runs, lambda run: run.training),
            _chart(
                "Masked-LM loss on held-out rows", view.runs, lambda run: run.held_out, dots=True
            ),
        )
        if chart is not None
    ]
    view.numbers = list(_numbers(view.runs))
    configured = [run.config for run in view.runs]
    if None in configured:
        names = ", ".join(run.label for run in view.runs if run.config is None)
        view.problems.append(f"Settings are not compared: those of {names} cannot be read.")
    elif len(configured) > 1:
        view.settings = differing([config for config in configured if config is not None])
    view.offers = _offers(store, lineage_id, set(wanted), reader)
    return view


def _compared(
    store: StoreLayout, lineage_id: str, run_key: str, style: str, reader: Reader
) -> ComparedRun | None:
    if not _RUN_KEY.fullmatch(run_key):
        return None
    run, lineage = store.run(run_key), store.lineage(lineage_id)
    record = reader.load(RunRecord, run.record)
    if record is not None and (record.lineage_id != lineage_id or not record.partition):
        return None
    version_id = identity.version_id(run_key)
    model = reader.load(ModelVersion, lineage.model(version_id))
    if record is None and model is None:
        return None
    version = VersionLayout(lineage.version(version_id))
    plan = reader.load(RunPlan, version.plan if record is None else run.plan)
    records = metric_records(run.training, reader)
    return ComparedRun(
        run_key=run_key,
        style=style,
        label=_label(record, plan, run_key),
        version_id=version_id if model is not None else None,
        record=record,
        config=reader.attempt(lambda: _config(version.config if record is None else run.config)),
        plan=plan,
        result=reader.load(TrainingResult, run.training.result),
        verdict=_verdict(run, plan, version, reader),
        outcome=reader.load(RunOutcome, run.outcome),
        spending=reader.attempt(lambda: spending([run])),
        training=losses(records, metric_files.LOOP),
        held_out=losses(records, metric_files.HELD_OUT),
    )


def _label(record: RunRecord | None, plan: RunPlan | None, run_key: str) -> str:
    """Return a name that is also distinct for two runs over the same partition."""
    partition = record.partition if record else plan.partition if plan else ""
    return f"{partition} {run_key[:6]}".strip()


def _config(uri: str) -> PipelineConfig | None:
    data = uris.read_or_none(uri)
    return None if data is None else parse_config(data, uri)


def _verdict(
    run: RunLayout, plan: RunPlan | None, version: VersionLayout, reader: Reader
) -> Verdict | None:
    found = reader.load(Verdict, run.verdict(plan.parent_version)) if plan is not None else None
    return found or reader.load(Verdict, version.verdict)


def _chart(
    title: str,
    runs: list[ComparedRun],
    points: Callable[[ComparedRun], list[Point]],
    *,
    dots: bool = False,
) -> LineChart | None:
    series = [Series(run.label, run.style, points(run), dots) for run in runs]
    return line_chart(title, STEP, NATS, series)


def _numbers(runs: list[ComparedRun]) -> Iterator[SettingRow]:
    """Yield the results of the runs, without rows that are unknown for all of them."""
    plan, result = attrgetter("plan"), attrgetter("result")
    verdict, spent = attrgetter("verdict"), attrgetter("spending")
    for name, part, text in (
        ("outcome", attrgetter("state"), str),
        ("begun, UTC", attrgetter("record"), lambda one: formatting.time(one.created)),
        ("starts from", plan, lambda one: one.parent_version or "no version"),
        ("trains on", plan, lambda one: ", ".join(sorted(one.trained))),
        ("replays", plan, lambda one: ", ".join(sorted(one.replayed)) or "nothing"),
        ("steps", result, lambda one: formatting.number(one.train_steps)),
        ("tokens", result, lambda one: formatting.number(one.tokens)),
        ("time in steps", result, lambda one: formatting.duration(one.seconds)),
        ("last training loss", result, lambda one: formatting.loss(one.final_loss)),
        ("loss on its own set", verdict, lambda one: formatting.loss(one.candidate_loss)),
        ("compared with", verdict, lambda one: formatting.loss(one.reference_loss)),
        ("improvement", verdict, lambda one: formatting.signed(one.improvement)),
        ("improvement, interval", verdict, _interval),
        ("chip-hours", spent, lambda one: f"{one.chip_hours:.3f}"),
        ("cost, at most", spent, lambda one: f"{one.cost:,.2f} {one.currency}"),
    ):
        parts = [part(run) for run in runs]
        if any(found is not None for found in parts):
            unknown = formatting.UNKNOWN
            yield SettingRow(name, [unknown if one is None else text(one) for one in parts])


def _interval(verdict: Verdict) -> str:
    low, high = verdict.improvement_low, verdict.improvement_high
    return f"{formatting.signed(low)} to {formatting.signed(high)}"


def _offers(store: StoreLayout, lineage_id: str, chosen: set[str], reader: Reader) -> list[Offer]:
    found = uris.list_named(store.runs, "run.json", "outcome.json")
    listed = {details.uri for details in found}
    newest = sorted(found, key=attrgetter("modified"), reverse=True)
    of_runs = [details.uri for details in newest if details.uri.endswith("/run.json")]
    own: list[RunRecord] = []
    # Only its record says which lineage a run belongs to.
    for start in range(0, len(of_runs), MOST_OFFERED):
        records = reader.load_all(RunRecord, of_runs[start : start + MOST_OFFERED])
        own += [one for one in records if one is not None and _is_offered(one, lineage_id)]
        if len(own) >= MOST_OFFERED:
            break
    own = own[:MOST_OFFERED]
    places = [store.run(record.run_key).outcome for record in own]
    ended = [uri for uri in places if uri in listed]
    outcomes = dict(zip(ended, reader.load_all(RunOutcome, ended), strict=True))
    return [
        Offer(record, _state(outcomes.get(uri)), record.run_key in chosen)
        for record, uri in zip(own, places, strict=True)
    ]


def _is_offered(record: RunRecord, lineage_id: str) -> bool:
    is_pretraining = bool(record.partition) and record.rental_of is None
    return is_pretraining and record.lineage_id == lineage_id


def _state(outcome: RunOutcome | None) -> str:
    return "under way" if outcome is None else str(outcome.outcome)


def parent_key(lineage: LineageLayout, plan: RunPlan | None, reader: Reader) -> str | None:
    """Return the key of the run that made the model a run starts from, to compare the two."""
    if plan is None or plan.parent_version is None:
        return None
    parent = plan.parent_version
    model = reader.load(ModelVersion, lineage.model(parent))
    return model.run_key if model is not None else None
