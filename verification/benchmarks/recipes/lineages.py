"""Trains a lineage's model repeatedly: from random weights, then on one partition after another.

Every step is the project's own command, as the pipeline runs it, but without the gate. Existing
results are not made again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from pipeline_config import PipelineConfig
from pipeline_store import uris
from pipeline_store.formats import EvaluationReport
from verification.benchmarks.commands import say
from verification.benchmarks.recipes import drift
from verification.benchmarks.recipes.trainings import Overrides
from verification.benchmarks.recipes.workshop import Workshop

# Rows half as long and a smaller vocabulary: half the arithmetic of the preset's steps.
_COMMON: Overrides = {
    "vocabulary.size": 6000,
    "model.vocab_size": 6000,
    "masking.max_seq_length": 64,
    "masking.max_predictions_per_seq": 10,
    # Enough documents to tell models apart.
    "corpus.validation_fraction": 0.2,
    "evaluation.global_batch_size": 64,
    "evaluation.max_records_per_set": 1000,
}


@dataclass(frozen=True)
class Length:
    """Amount of training: steps of the first model and of each update, text of each partition."""

    first_steps: int
    steps: int
    characters: int


class Lineages:
    """A folder with the prepared partitions, and models trained on them."""

    def __init__(self, state_dir: Path, length: Length) -> None:
        """Set the paths; prepare nothing yet.

        :param state_dir: the folder's parent; folders of other lengths have other names.
        """
        name = f"updates-{length.first_steps}-{length.steps}-{length.characters}"
        self._shop = Workshop(state_dir / name, _COMMON)
        self.root = self._shop.root
        self._length = length

    def write_corpus(self) -> Path:
        """Write the text of each partition if it is missing; return the folder of all."""
        corpus = self.root / "corpus"
        if not corpus.exists():
            drift.write(self.root / "writing", self._length.characters)
            (self.root / "writing").rename(corpus)
        return corpus

    @cached_property
    def manifests(self) -> dict[str, str]:
        """The manifest of each partition; missing ones are prepared."""
        self.write_corpus()
        found: dict[str, str] = {}
        for partition in drift.PARTITIONS:
            known = uris.list_files(self._shop.lineage.manifests(partition))
            manifests = [uri for uri in known if uri.endswith(".json")]
            if not manifests:
                say(f"preparing {partition} …")
                manifests = [self._shop.prepare(partition, self._config({}))]
            found[partition] = manifests[0]
        return found

    def prepare(self, partition: str, overrides: Overrides) -> str:
        """Prepare an additional partition with other settings; return its manifest.

        If that was done before, nothing is done. The vocabulary is that of the first partition.

        :param partition: a folder that was put into the folder of :meth:`write_corpus`.
        :raises ValueError: it is a partition of the lineage, whose records have one manifest.
        """
        if partition in self.manifests:
            raise ValueError(f"{partition} is a partition of the lineage, prepared in one way only")
        return self._shop.prepare(partition, self._config(overrides))

    def first(self) -> str:
        """Return the version with which all lineages begin, trained on the first partition."""
        return self.train("first", {}, drift.PARTITIONS[0], parent=None)

    def train(
        self,
        name: str,
        overrides: Overrides,
        partition: str,
        *,
        parent: str | None,
        replayed: Sequence[str] = (),
        manifest: str | None = None,
    ) -> str:
        """Train on one partition; return the version made from the result.

        :param name: name of the run.
        :param parent: version to continue; None: random weights.
        :param replayed: earlier partitions to replay.
        :param manifest: manifest of the partition's records; None: the one in :attr:`manifests`.
        :raises RuntimeError: the trainer fails; its messages are on stderr.
        """
        if known := self._shop.version(name):
            return known
        steps = self._length.steps if parent else self._length.first_steps
        return self._shop.train(
            name,
            self._shop.config(overrides, steps),
            [manifest or self.manifests[partition]],
            parent=parent,
            replayed=[self.manifests[earlier] for earlier in replayed],
        )

    def evaluate(self, versions: Sequence[str], partitions: Sequence[str]) -> EvaluationReport:
        """Return the scores of versions on the held-out documents of partitions.

        Models are named 0, 1, … in the order of the versions.
        """
        sets = {partition: self.manifests[partition] for partition in partitions}
        return self._shop.evaluate(self._config({}), versions, sets, partitions[-1])

    def _config(self, overrides: Overrides) -> PipelineConfig:
        return self._shop.config(overrides, self._length.steps)
