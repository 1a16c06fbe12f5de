"""An evaluation reads and computes no more when a lineage has seen ten times as many partitions."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from model_registry.panel import scored_sets
from pipeline_config import parse_config
from pipeline_store import uris
from pipeline_store.formats import DocumentSetScore, EvaluationReport, ModelScore
from tests.training.conftest import TwoDays
from tests.training.evaluation.test_earlier import Lineage
from trained_models.importing.sources import files_sha256
from training.evaluation import evaluator
from training.evaluation.earlier import scored_by
from training.evaluation.evaluation_sets import EvaluationSet, open_set
from training.input.records import RecordReader

DAYS = [f"day-{number:03d}" for number in range(1, 101)]
EARLY, LATE = 10, 100
MOST_GROWTH = 1.2


class Counts:
    """Counts calls of the store, records that are read, and rows that a model is applied to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.counts: Counter[str] = Counter()
        backend, read, score = uris._backend, RecordReader.read, evaluator._score_set

        def counted_backend(uri: str) -> Any:
            self.counts["calls of the store"] += 1
            return backend(uri)

        def counted_read(reader: RecordReader, numbers: np.ndarray) -> list[bytes]:
            self.counts["records"] += len(numbers)
            return read(reader, numbers)

        def counted_score(chosen: EvaluationSet, *others: Any) -> DocumentSetScore:
            self.counts["scored rows"] += len(chosen.rows)
            return score(chosen, *others)

        monkeypatch.setattr(uris, "_backend", counted_backend)
        monkeypatch.setattr(RecordReader, "read", counted_read)
        monkeypatch.setattr(evaluator, "_score_set", counted_score)


def made_up(chosen: EvaluationSet) -> DocumentSetScore:
    """Return scores that no model was asked for."""
    tokens = np.bincount(chosen.documents).astype(float)
    return DocumentSetScore(
        set_name=chosen.name,
        document_ids=chosen.document_ids,
        loss_sums=(5 * tokens).tolist(),
        correct_sums=[0.0] * len(tokens),
        reciprocal_rank_sums=[0.0] * len(tokens),
        token_counts=tokens.tolist(),
    )


class Long(Lineage):
    """A lineage that a hundred updates continue, a day each."""

    def __init__(self, two_days: TwoDays, folder: Path) -> None:
        super().__init__(two_days, folder)
        self.days = {
            day: self.store.partition(day, shards=1, documents=4, validation=4) for day in DAYS
        }
        self.config = parse_config(uris.read(self.candidate.config), "config.json")

    def scored(self, update: int) -> dict[str, str]:
        """Return the manifests of the sets that an update is scored on."""
        seen = {day: self.days[day] for day in DAYS[:update]}
        return scored_sets(seen, {DAYS[update - 1]}, self.config.evaluation.max_sets)

    def promote_before(self, number: int) -> None:
        """Promote the candidate before an update's, by made-up scores, and plan the update."""
        sets = [
            open_set(day, manifest, self.store.layout, self.config)
            for day, manifest in self.scored(number - 1).items()
        ]
        before = ModelScore(
            name="candidate",
            model_uri=self.version,
            files_sha256=files_sha256(self.version),
            sets=[made_up(chosen) for chosen in sets],
        )
        self.keep(
            EvaluationReport(
                partition=DAYS[number - 2],
                current_set=DAYS[number - 2],
                evaluated={chosen.name: chosen.manifest_sha256 for chosen in sets},
                models=[before],
                unigram_losses={},
                samples={chosen.name: chosen.sample_sha256 for chosen in sets},
                scored_by=scored_by(self.config),
            )
        )
        self.manifests = self.scored(number)


@pytest.mark.thorough
def test_the_hundredth_update_is_evaluated_as_cheaply_as_the_tenth(
    two_days: TwoDays, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lineage = Long(two_days, tmp_path / "store")
    found: dict[int, Counter[str]] = {}
    for number in (EARLY, LATE):
        lineage.promote_before(number)
        with monkeypatch.context() as patch:
            counts, began = Counts(patch), time.process_time()
            assert lineage.compare(DAYS[number - 1], "--current-set", DAYS[number - 1]) == 0
            found[number] = counts.counts
        print(f"update {number}: {dict(counts.counts)}, {time.process_time() - began:.1f} s of CPU")
        report = lineage.report(DAYS[number - 1])
        assert len(report.evaluated) <= lineage.config.evaluation.max_sets
        candidate, baseline = report.models
        new = [one.set_name for one in baseline.sets if one.loss != 5]
        assert new == [DAYS[number - 1]]
        assert len(candidate.sets) == len(baseline.sets)
    assert found[LATE].keys() == found[EARLY].keys() >= {"calls of the store", "records"}
    for what, count in found[LATE].items():
        assert count <= MOST_GROWTH * found[EARLY][what], what
