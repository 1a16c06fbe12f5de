"""Summarizes the results of a sweep: tables in Markdown, and the arms that the rule chooses.

A difference is that of the means over an arm's seeds. Its interval resamples held-out documents, or
test examples, as the gate does; the spread of the seeds is next to it.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields, replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from model_registry.bootstrap import Interval, interval
from pipeline_config.training_schema import PromotionConfig
from verification.benchmarks.update_sweep.grid import Arm, Scale, main_arms
from verification.benchmarks.update_sweep.results import (
    ACCURACY,
    DOMAIN_LOSS,
    LOSSES,
    OLD_LOSS,
    RECALL,
    ResultsError,
    Row,
    Settings,
)

MEASURES = (DOMAIN_LOSS, OLD_LOSS, RECALL, ACCURACY)
_CONFIDENCE, _SEED = 0.95, 1

Rows = Sequence[Row]


class Sweep:
    """The results of a sweep, some of which may be missing: ``found`` has the rows of each arm."""

    def __init__(self, settings: Settings, rows: Iterable[Row]) -> None:
        """Group results by arm.

        :raises ResultsError: the start was not measured.
        """
        self.start = list[Row]()
        self.found: dict[Arm, list[Row]] = defaultdict(list)
        for row in rows:
            (self.found[row.cell.arm] if row.cell else self.start).append(row)
        if not self.start:
            raise ResultsError("The start is not measured yet: let the sweep run on.")
        self._scale = Scale.of(settings["scale"])
        self._domain_rows = settings["rows"]["domain, dynamic"]

    @property
    def arms(self) -> list[Arm]:
        """Return the arms that have results, those of the main grid first."""
        return [
            arm
            for arm in dict.fromkeys([*main_arms(self._scale), *self.found])
            if arm in self.found
        ]

    @property
    def main(self) -> list[Arm]:
        """Return the arms of the main grid that have all seeds."""
        seeds = len(self._scale.seeds)
        return [arm for arm in main_arms(self._scale) if len(self.found.get(arm, ())) == seeds]

    def passes(self, arm: Arm) -> float:
        """Return the number of an arm's passes over the domain's text."""
        return arm.passes(self._domain_rows, self._scale.rows)


def difference(after: Rows, before: Rows, measure: str) -> Interval:
    """Return how much better some models are than others, with each side's mean over its rows.

    Better means a lower loss, or a larger share.
    """
    weights = np.array(before[0].measures[measure].weights, float)
    sides = _mean(after, measure), _mean(before, measure)
    return interval(*sides, weights, _CONFIDENCE, _SEED)


def _mean(rows: Rows, measure: str) -> npt.NDArray[np.float64]:
    return np.mean([row.measures[measure].losses for row in rows], axis=0)


def choose(sweep: Sweep, *, retrieval: bool) -> list[Arm]:
    """Return the main arms that are as good as the best one, the chosen one first.

    The rule was set before there were results. An arm is allowed if the gate's limits let it pass,
    on old text and, if that is judged, by retrieval. The best arm has the lowest domain loss. Arms
    are as good if they are worse by less than ``promotion.min_improvement``, or not surely worse.
    Of these, the arm with the largest recall is chosen: without a gain, embeddings must not suffer.

    :param retrieval: whether retrieval is judged, as a sentence encoder's is.
    :returns: an empty list if no arm is allowed.
    """
    limits = PromotionConfig()
    most = limits.max_retrieval_loss if retrieval else None

    def is_allowed(arm: Arm) -> bool:
        rows = sweep.found[arm]
        lost = -difference(rows, sweep.start, OLD_LOSS).mean
        keeps = most is None or difference(rows, sweep.start, RECALL).high >= -most
        return lost <= limits.max_forgetting and keeps

    def total(measure: str, arm: Arm) -> float:
        return float(_mean(sweep.found[arm], measure).sum())

    allowed = [arm for arm in sweep.main if is_allowed(arm)]
    if not allowed:
        return []
    best, equal = min(allowed, key=lambda arm: total(DOMAIN_LOSS, arm)), []
    for arm in allowed:
        worse = difference(sweep.found[best], sweep.found[arm], DOMAIN_LOSS)
        if worse.mean < limits.min_improvement or worse.low <= 0:
            equal.append(arm)
    return sorted(equal, key=lambda arm: total(RECALL, arm))


def contrasts(sweep: Sweep) -> Iterator[tuple[str, list[Row], list[Row]]]:
    """Yield changes of one setting: its description, and the trainings after and before it.

    The trainings are of arms that differ in nothing else, seed by seed.
    """
    for field in (one.name for one in fields(Arm)):
        # For masks drawn once, it is a separate question how many passes are too many.
        for masks in ((True,), (False,)) if field == "steps" else ((True, False),):
            arms = [arm for arm in sweep.found if arm.dynamic in masks]
            for less, more in pairwise(sorted({getattr(arm, field) for arm in arms})):
                some = [arm for arm in arms if getattr(arm, field) == less]
                both = [(arm, replace(arm, **{field: more})) for arm in some]
                pairs = [
                    (before, after)
                    for one, other in both
                    for before in sweep.found[one]
                    for after in sweep.found.get(other, ())
                    if before.seed == after.seed
                ]
                if pairs:
                    which = "" if len(masks) > 1 else f", {_masks(some[0])} masks"
                    earlier, later = (list(side) for side in zip(*pairs, strict=True))
                    change = f"{field} {more:g} instead of {less:g}"
                    if field == "dynamic":
                        change = "dynamic masks instead of static ones"
                    yield f"{change}{which}", later, earlier


def markdown(sweep: Sweep) -> str:
    """Return the tables and the choices of the rule."""
    return "\n\n".join([_arms_table(sweep), _contrasts_table(sweep), *_choices(sweep)])


def _arms_table(sweep: Sweep) -> str:
    head = ["rate", "replay", "masks", "warm-up", "passes", "seeds", *MEASURES]
    rows = [["the start", *[""] * 5, *(_value(sweep.start, name) for name in MEASURES)]]
    for arm in sweep.arms:
        found = sweep.found[arm]
        own = [f"{arm.rate:g}", f"{arm.replay:g}", _masks(arm), f"{arm.warmup:g}"]
        own += [f"{sweep.passes(arm):.1f}", str(len(found))]
        own += [f"{_value(found, m)}; {_difference(found, sweep.start, m)}" for m in MEASURES]
        rows.append(own)
    return _table(head, rows)


def _contrasts_table(sweep: Sweep) -> str:
    rows = [
        [label, str(len(after)), *(_difference(after, before, name) for name in MEASURES)]
        for label, after, before in contrasts(sweep)
    ]
    return _table(["one setting changed", "pairs of trainings", *MEASURES], rows)


def _choices(sweep: Sweep) -> Iterator[str]:
    for kind, retrieval in (("a sentence encoder", True), ("any other model", False)):
        chosen = choose(sweep, retrieval=retrieval)
        names = [f"{arm.rate:g}, replay {arm.replay:g}, {_masks(arm)} masks" for arm in chosen]
        if not names:
            why = (
                "the gate's limits let no arm pass"
                if sweep.main
                else "no arm has all its seeds yet"
            )
            yield f"By the rule, for {kind}: none, as {why}."
            continue
        others = f"; as good: {'; '.join(names[1:])}" if names[1:] else ""
        yield f"By the rule, for {kind}: **rate {names[0]}**{others}."


def _masks(arm: Arm) -> str:
    return "dynamic" if arm.dynamic else "static"


def _value(rows: Rows, measure: str) -> str:
    values = [row.value(measure) for row in rows]
    spread = f" ± {statistics.stdev(values):.3f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.3f}{spread}"


def _difference(after: Rows, before: Rows, measure: str) -> str:
    """Return a readable difference with its interval: negative if a loss fell."""
    mean, low, high = difference(after, before, measure)
    if measure in LOSSES:
        mean, low, high = -mean, -high, -low
    return f"{mean:+.3f} ({low:+.3f} to {high:+.3f})"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
