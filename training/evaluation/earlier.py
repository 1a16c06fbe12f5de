"""Reuses documents and scores of the evaluation of the model in use.

The documents that a partition is scored on are drawn once, by the update that trains on it, and
stay the same for all later updates, so that guards compare like with like even if settings change.
Sets that a model was scored on as a candidate are not scored again on a rented TPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pipeline_config import PipelineConfig
from pipeline_store import uris
from pipeline_store.formats import DocumentSetScore, EvaluationReport, ModelVersion
from pipeline_store.layout import VersionLayout
from trained_models.artifacts import verify_files
from training.evaluation.evaluation_sets import EvaluationSet, Sample

# To be increased when scores of the same model on the same documents would change: losses, ranks,
# the definition of a document's halves.
_DEFINITION = 1


@dataclass(frozen=True)
class Earlier:
    """An evaluation, if there is one."""

    report: EvaluationReport | None = None

    @classmethod
    def of_version(cls, version_uri: str) -> Earlier:
        """Read the evaluation that a version was promoted by, verified.

        :raises FileNotFoundError: there is no such version.
        :raises FormatError: its evaluation is damaged, or gone.
        """
        folder = VersionLayout(version_uri)
        digests = ModelVersion.load(folder.model).files
        found = [file for file in digests if uris.join(version_uri, file.path) == folder.evaluation]
        verify_files(version_uri, found)
        return cls(EvaluationReport.load(folder.evaluation) if found else None)

    def sample(self, set_name: str) -> Sample | None:
        """Return the documents that a set was scored on; None: new ones have to be drawn.

        Evaluations older than such samples have none, and that of an import is only an excerpt.
        """
        sha256 = None if self.report is None else self.report.samples.get(set_name)
        if self.report is None or sha256 is None:
            return None
        (score,) = [one for one in self.report.models[0].sets if one.set_name == set_name]
        return Sample(score.document_ids, sha256)

    def scores(
        self, files_sha256: str, sets: Sequence[EvaluationSet], config: PipelineConfig
    ) -> dict[str, DocumentSetScore]:
        """Return the known scores of a model, by set.

        Only scores on the same documents with the same masks, by the same arithmetic, count.

        :param files_sha256: :func:`trained_models.importing.sources.files_sha256` of the model.
        """
        report = self.report
        if report is None or report.scored_by != scored_by(config):
            return {}
        known = {
            score.set_name: score
            for model in report.models
            if model.files_sha256 == files_sha256
            for score in model.sets
        }
        return {
            chosen.name: known[chosen.name]
            for chosen in sets
            if chosen.name in known and report.samples.get(chosen.name) == chosen.sample_sha256
        }


def scored_by(config: PipelineConfig) -> str:
    """Return a description of the arithmetic of scores: other rounding gives other scores."""
    training = config.training
    return (
        f"{training.distribution_strategy}, {training.mixed_precision_dtype}, residuals "
        f"{training.residual_dtype}, definition {_DEFINITION}"
    )
