"""Finished runs as the other parts leave them in the store, without training anything."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from model_registry import registry
from model_registry.gate import judge
from model_registry.versions import manifests
from pipeline_config import load_preset, with_overrides
from pipeline_store import identity, uris
from pipeline_store.formats import (
    CheckpointManifest,
    DataStatistics,
    DocumentSetScore,
    EvaluationReport,
    ExportCheck,
    ExportedFormat,
    FileDigest,
    Heritage,
    ModelExports,
    ModelScore,
    ModelVersion,
    PartitionManifest,
    RetrievalScore,
    RunPlan,
    RunRecord,
    Split,
    TrainingInputs,
    TrainingResult,
    Verdict,
    VocabularyInfo,
)
from pipeline_store.layout import LineageLayout, RunLayout, StoreLayout
from trained_models.artifacts import model_files

CONFIG = load_preset("smoke")
VOCABULARY = b"[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nword\n"
NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
TOKEN = "f" * 32


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def write_training(run: RunLayout, key: str, heritage: Heritage | None = None) -> None:
    """Write the result of a training whose weights are no weights.

    :param key: goes into them.
    """
    training, files = run.training, []
    folder = f"attempts/{TOKEN}/0000000400"
    for name in ("inputs.json", "model.data-00000-of-00001", "model.index"):
        data = f"{name} of {key}".encode() * 100
        if name == "inputs.json":
            data = TrainingInputs(
                settings={"run": key},
                vocabulary_sha256=sha256(VOCABULARY),
                records={},
                heritage=heritage,
            ).to_bytes()
        uris.write(uris.join(training.root, folder, name), data)
        digest = FileDigest(path=f"{folder}/{name}", bytes=len(data), sha256=sha256(data))
        files.append(digest)
    CheckpointManifest(
        step=400,
        holder_token=TOKEN,
        prefix=f"{folder}/model",
        files=files,
        config_sha256="c",
        data_sha256="d",
        random_seed=1,
        loss=5.25,
        tokens=1_500_000,
        seconds=60.0,
        resumed_from=[],
        created=NOW,
    ).write(training.checkpoint(400))
    TrainingResult(
        train_steps=400,
        tokens=1_500_000,
        final_loss=5.25,
        checkpoint="checkpoints/0000000400.json",
        weights_sha256="e",
        seconds=60.0,
        resumed_from=[],
    ).write(training.result)


class FinishedRun:
    """A run whose TPU is gone: training result, evaluation and verdict are in the store.

    :param gain: nats per token by which the candidate beats its reference.
    """

    def __init__(
        self,
        store_uri: str,
        name: str,
        *,
        parent: str | None = None,
        gain: float = 0.5,
        heritage: Heritage | None = None,
    ) -> None:
        self.store = StoreLayout(store_uri)
        self.lineage: LineageLayout = self.store.lineage("default")
        self.name, self.partition = name, f"day-{name}"
        self.key = identity.run_key("dag", name)
        self.run: RunLayout = self.store.run(self.key)
        self.parent = parent
        self._vocabulary()
        self.manifest_uri = self._manifest()
        self._record()
        self.plan()
        write_training(self.run, self.key, heritage)
        self.export()
        self.evaluate(baseline=parent, gain=gain)

    @property
    def version_id(self) -> str:
        return identity.version_id(self.key)

    def _vocabulary(self) -> None:
        uris.write(self.lineage.vocabulary, VOCABULARY)
        VocabularyInfo(
            vocabulary_kind="wordpiece",
            sha256=sha256(VOCABULARY),
            tokens_sha256=sha256(VOCABULARY),
            size=6,
            do_lower_case=True,
            source="test",
        ).write(self.lineage.vocabulary_info)

    def _manifest(self) -> str:
        uri = self.lineage.manifest(self.partition, "0" * 16)
        PartitionManifest(
            partition=self.partition,
            lineage_id="default",
            vocabulary_sha256=sha256(VOCABULARY),
            config_sha256=CONFIG.data_sha256,
            packing="doc_sentences",
            masked=not CONFIG.masking.dynamic,
            max_seq_length=128,
            max_predictions_per_seq=20,
            extra_max_seq_length=None,
            extra_max_predictions_per_seq=None,
            shards=[self.store.shard_manifest("a" * 32)],
            documents=1234,
            records={Split.TRAIN: 5000, Split.VALIDATION: 500},
            tokens={Split.TRAIN: 600_000, Split.VALIDATION: 60_000},
            dropped={"empty": 3},
            duplicate_index=None,
            statistics=DataStatistics(
                document_tokens={}, row_tokens={}, text_tokens=0, unknown_tokens=0, new_words={}
            ),
        ).write(uri)
        return uri

    def _record(self) -> None:
        config = with_overrides(CONFIG, {"corpus.partition": self.partition})
        uris.write(self.run.config, config.to_bytes())
        RunRecord(
            run_key=self.key,
            dag_id="dag",
            run_id=self.partition,
            partition=self.partition,
            lineage_id="default",
            config_sha256=config.sha256,
            created=NOW,
        ).write(self.run.record)

    def plan(self, **changes: object) -> RunPlan:
        """Write what the run was trained on: its own partition, unless changed."""
        plan = RunPlan(
            partition=self.partition,
            parent_version=self.parent,
            trained={self.partition: self.manifest_uri},
            replayed={},
            not_replayed={},
            evaluated={self.partition: self.manifest_uri},
            lease_sequence=1,
            created=NOW,
        ).model_copy(update=changes)
        plan.write(self.run.plan)
        return plan

    def export(self, *formats: str, **changes: object) -> None:
        """Write files of some formats, of all if none is given, and what commits them."""
        layout, written = self.run.exports, {}
        check = ExportCheck(
            rows=16, max_hidden_state_difference=2e-6, max_logit_difference=3e-6, masks=40
        )
        for name in formats or ("hugging_face", "saved_model"):
            data = f"{name} of {self.key}".encode()
            uris.write(uris.join(layout.root, "one-try", name, "below/weights"), data)
            file = FileDigest(path="below/weights", bytes=len(data), sha256=sha256(data))
            written[name] = ExportedFormat(folder=f"one-try/{name}", files=[file], check=check)
        exports = ModelExports(
            files_sha256=model_files(self.run.training.root).sha256,
            formats=written,
            left_out={},
            created=NOW,
        )
        exports.model_copy(update=changes).write(layout.record)

    def evaluate(self, *, baseline: str | None, gain: float) -> Verdict:
        """Write the report and the verdict of a comparison with a baseline."""
        random = np.random.default_rng(1)
        tokens = random.integers(5, 60, 40).astype(float)
        losses = tokens * (6 + random.normal(0, 0.1, 40))
        models = [("candidate", self.run.training.root, losses - gain * tokens)]
        if baseline is not None:
            models.append(("baseline", self.lineage.version(baseline), losses))
        report = EvaluationReport(
            partition=self.partition,
            current_set=self.partition,
            evaluated={self.partition: "1" * 64},
            models=[
                ModelScore(
                    name=name,
                    model_uri=uri,
                    files_sha256="2" * 64,
                    sets=[
                        DocumentSetScore(
                            set_name=self.partition,
                            document_ids=[f"{n:016x}" for n in range(40)],
                            loss_sums=sums.tolist(),
                            correct_sums=(tokens / 4).tolist(),
                            reciprocal_rank_sums=(tokens / 2).tolist(),
                            token_counts=tokens.tolist(),
                        )
                    ],
                )
                for name, uri, sums in models
            ],
            unigram_losses={self.partition: 6.0},
        )
        report.write(self.run.evaluation(baseline))
        return self._judge(report, baseline)

    def embed(self, **ranks: list[float]) -> Verdict:
        """Add retrieval to the evaluation, and judge again.

        :param ranks: of the first documents, by model.
        """
        report = EvaluationReport.load(self.run.evaluation(self.parent))
        models = []
        for model in report.models:
            [scores] = model.sets
            found = ranks[model.name]
            retrieval = RetrievalScore(document_ids=scores.document_ids[: len(found)], ranks=found)
            measured = scores.model_copy(update={"retrieval": retrieval})
            models.append(model.model_copy(update={"sets": [measured]}))
        report = report.model_copy(update={"models": models})
        report.write(self.run.evaluation(self.parent))
        return self._judge(report, self.parent)

    def _judge(self, report: EvaluationReport, baseline: str | None) -> Verdict:
        verdict = judge(report, CONFIG.promotion, baseline_version=baseline)
        verdict.write(self.run.verdict(baseline))
        return verdict


def two_promoted(folder: Path) -> list[FinishedRun]:
    """Return two promoted runs of one lineage, in a store of this folder."""
    found: list[FinishedRun] = []
    for name in ("1", "2"):
        parent = found[-1].version_id if found else None
        run = FinishedRun(str(folder / "store"), name, parent=parent)
        registry.publish(run.store, run.run)
        registry.promote(run.lineage, run.version_id, expected_baseline=parent, reason="better")
        found.append(run)
    return found


def change_manifest(
    lineage: LineageLayout, version_id: str, partition: str, **changes: object
) -> None:
    """Let a version have a manifest of its own, as all had once, and perhaps a changed one."""
    model = ModelVersion.load(lineage.model(version_id))
    path = f"manifests/{partition}.json"
    before = PartitionManifest.load(manifests(lineage, model)[partition])
    data = before.model_copy(update=changes).to_bytes()
    uris.write(uris.join(lineage.version(version_id), path), data)
    files = [file for file in model.files if file.path != path] + [FileDigest.of(path, data)]
    named = {name: digest for name, digest in model.manifests.items() if name != partition}
    changed = model.model_copy(update={"files": files, "manifests": named})
    changed.write(lineage.model(version_id))
