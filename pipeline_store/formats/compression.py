"""Stored files of smaller models made from a classifier, with measurements and verdict."""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from pipeline_store.formats.base import StoredFile
from pipeline_store.formats.data import FileDigest
from pipeline_store.formats.finetuning import MetricInterval


class ChildParent(BaseModel):
    """The classifier that a smaller one is made from."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    run_key: str = Field(description="of the run that has trained it")
    trial_id: str
    weights_sha256: str
    lineage_id: str
    version_id: str | None = Field(
        description="version that the classifier was fine-tuned from; none: no version"
    )


class ModelFigures(BaseModel):
    """Measurements of an exported model: on the test split of its task, and on one thread."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    parameters: int = Field(description="weights that are in the file, counted there")
    expected_parameters: int = Field(description="what its layers and vocabulary make")
    types: dict[str, float] = Field(description="share of the weights by their type in the file")
    megabytes: float = Field(description="10^6 bytes of the file with the weights")
    p50_ms: float = Field(description="median time for one padded row on one thread")
    p95_ms: float
    metric: str
    value: float
    loss: float = Field(description="mean over the examples; nats, or squared error")
    examples: int


class ChildComparison(BaseModel):
    """A comparison of a smaller model's answers with those of its parent and its conversion."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    difference: float = Field(description="of the metric: child minus parent")
    interval: MetricInterval = Field(description="paired bootstrap, 95 %")
    agreement: float = Field(description="share of examples with the parent's answer")
    conversion_agreement: float = Field(
        description="share of examples with the answer of the model that was written"
    )
    covered: float | None = Field(
        default=None,
        description="share of examples all of whose tokens a trimmed vocabulary has; none: it is "
        "not trimmed",
    )
    covered_difference: float | None = Field(
        default=None, description="largest difference of logits on those, before any conversion"
    )


class CompressedModel(StoredFile):
    """``children/<trial>/<child>/child.json``: a smaller model. Its existence is the commit."""

    kind = "compressed-model"
    has_checksum = True

    name: str = Field(description="its steps")
    task: str
    parent: ChildParent
    settings: dict[str, JsonValue] = Field(description="the CompressionConfig that it depends on")
    parent_figures: ModelFigures
    figures: ModelFigures
    comparison: ChildComparison
    accepted: bool
    reasons: list[str] = Field(description="why it is refused")
    served_as: str = Field(description="saved_model or tflite: the folder below ``folder``")
    folder: str = Field(description="relative to child.json; of a refused child empty")
    files: list[FileDigest] = Field(description="paths relative to that folder")
    created: datetime
