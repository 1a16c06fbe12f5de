"""Which sets of held-out documents models are scored on: a bounded panel, the same for long."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from typing import TypeVar

from pipeline_store.formats import BestScores

Value = TypeVar("Value")


def scored_sets(
    found: Mapping[str, Value],
    always: Collection[str],
    most: int,
    left: Collection[str] = (),
) -> dict[str, Value]:
    """Return what belongs to the sets that models are scored on, in order of their names.

    Beside those that are always scored they are the ones whose names have the smallest hashes: an
    even sample of the lineage's history, which a new partition seldom gets into and which none
    that has left it comes back to. So the same sets are compared from update to update.

    :param found: by set, everything there is.
    :param always: names of sets, some of which need not be in ``found``.
    :param most: how many may be scored, ``always`` among them.
    :param left: names of those that have left.
    """
    others = found.keys() - {*always, *left}
    ranked = sorted(others, key=lambda name: hashlib.sha256(name.encode()).digest())
    kept = {*always, *ranked[: max(0, most - len({*always}))]}
    return {name: value for name, value in sorted(found.items()) if name in kept}


def bounded(best: BestScores, scored: Collection[str], most: int) -> BestScores:
    """Return the best scores of the panel alone, and who has left it.

    :param scored: names of the sets that were scored last.
    """
    sets = scored_sets(best.sets, scored, most, best.left)
    retrieval = {name: found for name, found in best.retrieval.items() if name in sets}
    left = sorted({*best.left, *(best.sets.keys() - sets.keys())} - sets.keys())
    return best.model_copy(update={"sets": sets, "retrieval": retrieval, "left": left})
