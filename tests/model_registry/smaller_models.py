"""Records of smaller models as training.compress leaves them, without making any."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from pipeline_store.formats import (
    ChildComparison,
    ChildParent,
    CompressedModel,
    MetricInterval,
    ModelFigures,
)
from tests.model_registry.runs import FinishedRun

CHILD = "student+tflite_dynamic_range"
TRIAL = "topics.model.3e-05.1"
BEGIN = datetime(2026, 11, 1, tzinfo=UTC)


def put_child(
    run: FinishedRun,
    key: str,
    *,
    trial: str = TRIAL,
    hours: int = 0,
    name: str = CHILD,
    **changes: Any,
) -> str:
    """Write a child of a classifier of a run's version; return its record's place."""
    figures = ModelFigures(
        parameters=10, expected_parameters=10, types={"int8": 1.0}, megabytes=1.0, p50_ms=1.0,
        p95_ms=2.0, metric="accuracy", value=0.9, loss=0.3, examples=100,
    )  # fmt: skip
    comparison = ChildComparison(
        difference=0.0,
        interval=MetricInterval(low=0.0, high=0.0),
        agreement=1.0,
        conversion_agreement=1.0,
    )
    fields: dict[str, Any] = {
        "name": name,
        "task": "topics",
        "parent": ChildParent(
            run_key=key,
            trial_id=trial,
            weights_sha256="0",
            lineage_id=run.lineage.root.rpartition("/")[2],
            version_id=run.version_id,
        ),
        "settings": {},
        "parent_figures": figures,
        "figures": figures,
        "comparison": comparison,
        "accepted": True,
        "reasons": [],
        "served_as": "tflite",
        "folder": "f" * 12,
        "files": [],
        "created": BEGIN + timedelta(hours=hours),
    }
    place = run.store.run(key).children(trial).child(name).record
    CompressedModel(**fields | changes).write(place)
    return place
