"""The folder layout of the store, defined only here."""

from __future__ import annotations

from dataclasses import dataclass

from pipeline_store import uris

READY_MARKERS = ("_READY", "_SUCCESS")
"""Marker files that say a corpus folder is completely written; they are not text.

Hadoop and Spark write the second.
"""


@dataclass(frozen=True)
class AttemptLayout:
    """The mailbox of one TPU attempt."""

    root: str

    @property
    def record(self) -> str:
        """Attempt."""
        return uris.join(self.root, "attempt.json")

    def mark(self, event: str) -> str:
        """AttemptMark."""
        return uris.join(self.root, "marks", f"{event}.json")

    def log_cursor(self, job_id: str, viewer: str) -> str:
        """LogCursor."""
        return uris.join(self.root, "watched", f"{job_id}.{viewer}.json")

    @property
    def jobs(self) -> str:
        """Folder of job specs, run in order of name."""
        return uris.join(self.root, "jobs")

    def job(self, job_id: str) -> str:
        """JobSpec."""
        return uris.join(self.jobs, f"{job_id}.json")

    def signature(self, job_id: str, spec_sha256: str) -> str:
        """JobSignature of the job's file with this content hash."""
        return uris.join(self.root, "signatures", f"{job_id}.{spec_sha256}.json")

    def limits(self, job_id: str) -> str:
        """JobLimits."""
        return uris.join(self.root, "limits", f"{job_id}.json")

    @property
    def hangs(self) -> str:
        """Folder with one folder per job that has hung."""
        return uris.join(self.root, "hangs")

    def hang(self, job_id: str, number: int, worker: int) -> str:
        """HangReport."""
        return uris.join(self.hangs, job_id, f"{number}.{worker}.json")

    @property
    def workers(self) -> str:
        """Folder with one folder per worker."""
        return uris.join(self.root, "workers")

    def hello(self, worker: int) -> str:
        """AgentHello."""
        return uris.join(self.workers, str(worker), "agent.json")

    @property
    def lease(self) -> str:
        """Lease."""
        return uris.join(self.root, "lease.json")

    @property
    def bill(self) -> str:
        """AttemptBill."""
        return uris.join(self.root, "bill.json")

    def heartbeat(self, worker: int) -> str:
        """Heartbeat."""
        return uris.join(self.workers, str(worker), "heartbeat.json")

    def status(self, worker: int, job_id: str) -> str:
        """JobStatus."""
        return uris.join(self.workers, str(worker), job_id, "status.json")

    def log(self, worker: int, job_id: str) -> str:
        """Folder of the job's log."""
        return uris.join(self.workers, str(worker), job_id, "log")

    def log_chunk(self, worker: int, job_id: str, chunk: int) -> str:
        """Chunk of the job's log, UTF-8 text; chunks are numbered from 0."""
        return uris.join(self.log(worker, job_id), f"{chunk:06d}.txt")


@dataclass(frozen=True)
class ReservationLayout:
    """One reservation generation."""

    root: str

    @property
    def record(self) -> str:
        """Reservation."""
        return uris.join(self.root, "reservation.json")

    @property
    def released(self) -> str:
        """Released, the tombstone."""
        return uris.join(self.root, "released.json")

    @property
    def ledger(self) -> str:
        """Ledger."""
        return uris.join(self.root, "ledger.json")

    @property
    def attempts(self) -> str:
        """Folder with one folder per attempt."""
        return uris.join(self.root, "attempts")

    def attempt(self, attempt: int) -> AttemptLayout:
        """Return the mailbox of one attempt."""
        return AttemptLayout(uris.join(self.attempts, f"a{attempt}"))


@dataclass(frozen=True)
class TrainingLayout:
    """The model folder of a run: checkpoints, TensorBoard events, result."""

    root: str

    @property
    def checkpoints(self) -> str:
        """Folder of checkpoint manifests."""
        return uris.join(self.root, "checkpoints")

    def checkpoint(self, step: int) -> str:
        """CheckpointManifest."""
        return uris.join(self.checkpoints, f"{step:010d}.json")

    def attempt_files(self, holder_token: str) -> str:
        """Folder for one attempt's files; they count only if a manifest names them."""
        return uris.join(self.root, "attempts", holder_token)

    @property
    def events(self) -> str:
        """Folder of TensorBoard events."""
        return uris.join(self.root, "events")

    @property
    def metrics(self) -> str:
        """Folder of metrics, JSON lines; see :mod:`trained_models.metric_files`."""
        return uris.join(self.root, "metrics")

    @property
    def initial_weights(self) -> str:
        """InitialWeights, when training did not begin with random weights."""
        return uris.join(self.root, "initial_weights.json")

    @property
    def result(self) -> str:
        """TrainingResult."""
        return uris.join(self.root, "result.json")


@dataclass(frozen=True)
class ExportsLayout:
    """A model in other formats."""

    root: str

    @property
    def record(self) -> str:
        """ModelExports, the commit."""
        return uris.join(self.root, "exports.json")

    def format_files(self, unique: str, name: str) -> str:
        """Folder of one try for one format; it counts only if the commit names it."""
        return uris.join(self.root, unique, name)


@dataclass(frozen=True)
class TrialLayout:
    """One training of a fine-tuning run."""

    root: str

    @property
    def training(self) -> TrainingLayout:
        """Return the folder of checkpoints, metrics and TensorBoard events."""
        return TrainingLayout(uris.join(self.root, "training"))

    @property
    def result(self) -> str:
        """TrialResult, the commit."""
        return uris.join(self.root, "result.json")

    def attempt_files(self, unique: str) -> str:
        """Folder for the files of one try; they count only if the commit names them."""
        return uris.join(self.root, "outputs", unique)


@dataclass(frozen=True)
class ChildLayout:
    """A smaller model made from a classifier."""

    root: str

    @property
    def record(self) -> str:
        """CompressedModel, the commit."""
        return uris.join(self.root, "child.json")

    def files(self, unique: str) -> str:
        """Folder for the files of one try; they count only if the commit names them."""
        return uris.join(self.root, unique)


@dataclass(frozen=True)
class ChildrenLayout:
    """The smaller models of one classifier."""

    root: str

    @property
    def student(self) -> TrialLayout:
        """Return the training of the student from which children are made."""
        return TrialLayout(uris.join(self.root, "student_training"))

    def child(self, name: str) -> ChildLayout:
        """Return the smaller model with this name, which lists its steps."""
        return ChildLayout(uris.join(self.root, name.replace("+", "-")))

    @property
    def table(self) -> str:
        """Measurements of the parent and its children, JSON lines; can be regenerated."""
        return uris.join(self.root, "children.jsonl")

    @property
    def page(self) -> str:
        """HTML page of those measurements."""
        return uris.join(self.root, "children.html")


@dataclass(frozen=True)
class TaskLayout:
    """A labeled task."""

    root: str

    @property
    def description(self) -> str:
        """TaskConfig, TOML, written by people."""
        return uris.join(self.root, "task.toml")

    @property
    def text_to_text(self) -> str:
        """TextMixture of a T5, TOML, written by people; it replaces the description."""
        return uris.join(self.root, "text_to_text.toml")

    @property
    def prepared(self) -> str:
        """Folder with one folder per preparation."""
        return uris.join(self.root, "prepared")

    def preparation(self, key: str) -> str:
        """Return the folder of one preparation; the key hashes inputs, settings and vocabulary."""
        return uris.join(self.prepared, key)

    def manifest(self, key: str) -> str:
        """TaskManifest, the commit."""
        return uris.join(self.preparation(key), "manifest.json")

    def overlaps(self, key: str, lineage_id: str, partition: str) -> str:
        """Folder of the overlaps between a preparation's test examples and a partition."""
        return uris.join(self.preparation(key), "overlaps", lineage_id, partition)

    def overlap(self, key: str, lineage_id: str, partition: str, manifest_id: str) -> str:
        """TaskOverlap with one manifest of a partition."""
        return uris.join(self.overlaps(key, lineage_id, partition), f"{manifest_id}.json")


_HEADS = "head"
"""Run subfolder for models of which only the head was trained; see :meth:`RunLayout.head`."""


def is_head(training_uri: str) -> bool:
    """Return whether a training folder is one in which only the head was trained."""
    return training_uri.rstrip("/").split("/")[-2:-1] == [_HEADS]


@dataclass(frozen=True)
class RunLayout:
    """One pipeline run."""

    root: str

    @property
    def store_root(self) -> str:
        """Root URI of the store that the run belongs to; see :meth:`StoreLayout.run`."""
        return self.root.rstrip("/").rsplit("/", 2)[0]

    @property
    def record(self) -> str:
        """RunRecord."""
        return uris.join(self.root, "run.json")

    @property
    def refusal(self) -> str:
        """RunRefusal; a refused run has no record."""
        return uris.join(self.root, "refusal.json")

    @property
    def config(self) -> str:
        """The effective PipelineConfig."""
        return uris.join(self.root, "config.json")

    @property
    def estimate(self) -> str:
        """RunEstimate."""
        return uris.join(self.root, "estimate.json")

    @property
    def plan(self) -> str:
        """RunPlan."""
        return uris.join(self.root, "plan.json")

    @property
    def prepared_partition(self) -> str:
        """PreparedInput of the run's own partition."""
        return uris.join(self.root, "prepared", "partition.json")

    def prepared_task(self, name: str) -> str:
        """PreparedInput of a labeled task."""
        return uris.join(self.root, "prepared", "tasks", f"{name}.json")

    @property
    def approval(self) -> str:
        """RunApproval, when a person is or was asked to approve."""
        return uris.join(self.root, "approval.json")

    @property
    def outcome(self) -> str:
        """RunOutcome."""
        return uris.join(self.root, "outcome.json")

    @property
    def holder(self) -> str:
        """Holder."""
        return uris.join(self.root, "holder.json")

    @property
    def reservations(self) -> str:
        """Folder with one folder per reservation generation."""
        return uris.join(self.root, "reservations")

    def reservation(self, generation: int) -> ReservationLayout:
        """Return one reservation generation."""
        return ReservationLayout(uris.join(self.reservations, f"g{generation}"))

    @property
    def training(self) -> TrainingLayout:
        """Return the model folder, shared by all attempts and generations of the run.

        A cleared task that runs again resumes, or finds the result and trains nothing.
        """
        return TrainingLayout(uris.join(self.root, "training"))

    def head(self, version_id: str | None) -> TrainingLayout:
        """Return the model folder of a version whose new head was trained with the encoder frozen.

        :param version_id: the version that the run starts from; None: no version of its lineage.
        """
        return TrainingLayout(uris.join(self.root, _HEADS, version_id or "initial"))

    @property
    def exports(self) -> ExportsLayout:
        """Return the folder of the result in other formats."""
        return ExportsLayout(uris.join(self.root, "exports"))

    @property
    def finetuning_plan(self) -> str:
        """FinetuningPlan, of a fine-tuning run."""
        return uris.join(self.root, "finetuning_plan.json")

    @property
    def trials(self) -> str:
        """Folder with one folder per trial of a fine-tuning run."""
        return uris.join(self.root, "trials")

    def trial(self, trial_id: str) -> TrialLayout:
        """Return one trial."""
        return TrialLayout(uris.join(self.trials, trial_id))

    def trial_exports(self, trial_id: str) -> ExportsLayout:
        """Return the folder of a trial's model in other formats."""
        return ExportsLayout(uris.join(self.root, "exports", trial_id))

    @property
    def all_children(self) -> str:
        """Folder with one folder per classifier from which smaller models were made."""
        return uris.join(self.root, "children")

    def children(self, trial_id: str) -> ChildrenLayout:
        """Return the smaller models of a trial's classifier."""
        return ChildrenLayout(uris.join(self.all_children, trial_id))

    def predictions(self, task: str) -> str:
        """Predictions for texts without labels, TSV, of a fine-tuning run."""
        return uris.join(self.root, "predictions", f"{task}.tsv")

    @property
    def training_summary(self) -> str:
        """FinetuningReport, of a fine-tuning run."""
        return uris.join(self.root, "training_summary.json")

    @property
    def training_page(self) -> str:
        """HTML page made from the FinetuningReport; can be regenerated."""
        return uris.join(self.root, "training_summary.html")

    def probe(self, baseline: str | None) -> str:
        """ProbeReport of the run's candidate against a baseline version (None: no baseline)."""
        return uris.join(self.root, "probes", f"{baseline or 'none'}.json")

    def probe_trial(self, baseline: str | None, trial_id: str) -> TrialLayout:
        """Return one trial of that probe."""
        return TrialLayout(uris.join(self.root, "probes", baseline or "none", trial_id))

    @property
    def evaluations(self) -> str:
        """Folder of evaluation reports, one per baseline."""
        return uris.join(self.root, "evaluations")

    def evaluation(self, baseline: str | None) -> str:
        """EvaluationReport of the run's candidate against a baseline version (None: unigram)."""
        return uris.join(self.evaluations, f"{baseline or 'unigram'}.json")

    @property
    def verdicts(self) -> str:
        """Folder of verdicts, one per baseline."""
        return uris.join(self.root, "verdicts")

    def verdict(self, baseline: str | None) -> str:
        """Verdict on the run's candidate against a baseline version (None: unigram)."""
        return uris.join(self.verdicts, f"{baseline or 'unigram'}.json")


@dataclass(frozen=True)
class VersionLayout:
    """One published model, with all files needed to use, evaluate or reproduce it."""

    root: str

    @property
    def model(self) -> str:
        """ModelVersion, the commit."""
        return uris.join(self.root, "model.json")

    @property
    def config(self) -> str:
        """The PipelineConfig it was trained with."""
        return uris.join(self.root, "config.json")

    @property
    def vocabulary(self) -> str:
        """``vocab.txt``, one token a line."""
        return uris.join(self.root, "vocab.txt")

    @property
    def sentencepiece_model(self) -> str:
        """``sentencepiece.model``, only with a SentencePiece or T5 vocabulary."""
        return uris.join(self.root, "sentencepiece.model")

    @property
    def bpe_tokenizer(self) -> str:
        """``tokenizer.json``, only with a byte-level BPE vocabulary."""
        return uris.join(self.root, "tokenizer.json")

    @property
    def plan(self) -> str:
        """RunPlan of the run that made it."""
        return uris.join(self.root, "plan.json")

    @property
    def evaluation(self) -> str:
        """EvaluationReport of the comparison it won."""
        return uris.join(self.root, "evaluation.json")

    @property
    def best_scores(self) -> str:
        """BestScores of the version and its ancestors; missing in versions of older releases."""
        return uris.join(self.root, "best_scores.json")

    @property
    def verdict(self) -> str:
        """Verdict that promoted it."""
        return uris.join(self.root, "verdict.json")

    @property
    def card(self) -> str:
        """Model card, Markdown."""
        return uris.join(self.root, "MODEL_CARD.md")

    def format(self, name: str) -> str:
        """Folder of the model in another format, as ``promotion.export_formats`` calls it."""
        return uris.join(self.root, name)

    def manifest(self, partition: str) -> str:
        """PartitionManifest of one partition seen, unless the version names another location."""
        return uris.join(self.root, "manifests", f"{partition}.json")


@dataclass(frozen=True)
class LineageLayout:
    """One line of models that share a vocabulary and an architecture."""

    root: str

    @property
    def vocabulary(self) -> str:
        """``vocab.txt``, one token a line."""
        return uris.join(self.root, "vocabulary", "vocab.txt")

    @property
    def sentencepiece_model(self) -> str:
        """``sentencepiece.model``, only of SentencePiece and T5 vocabularies."""
        return uris.join(self.root, "vocabulary", "sentencepiece.model")

    @property
    def bpe_tokenizer(self) -> str:
        """``tokenizer.json``, only of byte-level BPE vocabularies."""
        return uris.join(self.root, "vocabulary", "tokenizer.json")

    @property
    def vocabulary_info(self) -> str:
        """VocabularyInfo."""
        return uris.join(self.root, "vocabulary", "vocabulary.json")

    @property
    def production(self) -> str:
        """ProductionPointer."""
        return uris.join(self.root, "production.json")

    @property
    def lease(self) -> str:
        """LineageLease."""
        return uris.join(self.root, "lease.json")

    @property
    def waiting(self) -> str:
        """Folder of the tickets of runs that wait for the lease."""
        return uris.join(self.root, "waiting")

    def ticket(self, run_key: str) -> str:
        """WaitingTicket."""
        return uris.join(self.waiting, f"{run_key}.json")

    @property
    def attempts(self) -> str:
        """Folder with a file for each run of the lineage that has ended."""
        return uris.join(self.root, "attempts")

    def attempt(self, run_key: str) -> str:
        """LineageAttempt."""
        return uris.join(self.attempts, f"{run_key}.json")

    @property
    def versions(self) -> str:
        """Folder with one folder per model version."""
        return uris.join(self.root, "versions")

    def version(self, version_id: str) -> str:
        """Return the folder of one model version."""
        return uris.join(self.versions, version_id)

    def model(self, version_id: str) -> str:
        """ModelVersion."""
        return uris.join(self.version(version_id), "model.json")

    @property
    def pruned(self) -> str:
        """Folder of the records of versions that retention removed."""
        return uris.join(self.root, "pruned")

    def pruned_version(self, version_id: str) -> str:
        """PrunedVersion."""
        return uris.join(self.pruned, f"{version_id}.json")

    @property
    def rollbacks(self) -> str:
        """Folder with a file per rollback in progress; retention keeps the versions they name."""
        return uris.join(self.root, "rollbacks")

    def rollback(self, version_id: str, request: str) -> str:
        """RollbackMark."""
        return uris.join(self.rollbacks, f"{version_id}.{request}.json")

    @property
    def partitions(self) -> str:
        """Folder with one folder per partition."""
        return uris.join(self.root, "partitions")

    def manifests(self, partition: str) -> str:
        """Folder of a partition's manifests."""
        return uris.join(self.partitions, partition)

    def manifest(self, partition: str, manifest_id: str) -> str:
        """PartitionManifest."""
        return uris.join(self.manifests(partition), f"{manifest_id}.json")

    def duplicate_index(self, partition: str, sha256: str) -> str:
        """DuplicateIndex's data, named by its content."""
        return uris.join(self.manifests(partition), f"documents-{sha256}.npz")

    def data_report(self, partition: str, manifest_id: str) -> str:
        """HTML page with the statistics of a manifest; can be regenerated from it."""
        return uris.join(self.manifests(partition), f"{manifest_id}.html")


@dataclass(frozen=True)
class StoreLayout:
    """The whole store below one root URI."""

    root: str

    def resolve(self, path: str) -> str:
        """Return an absolute URI unchanged, and a relative path below the root."""
        return path if uris.is_absolute(path) else uris.join(self.root, path)

    def run(self, run_key: str) -> RunLayout:
        """Return one pipeline run."""
        return RunLayout(uris.join(self.root, "runs", run_key))

    @property
    def runs(self) -> str:
        """Folder with one folder per run."""
        return uris.join(self.root, "runs")

    @property
    def lineages(self) -> str:
        """Folder with one folder per line of models."""
        return uris.join(self.root, "lineages")

    def lineage(self, lineage_id: str) -> LineageLayout:
        """Return one line of models."""
        return LineageLayout(uris.join(self.root, "lineages", lineage_id))

    @property
    def backfills(self) -> str:
        """Folder with a file for each backfill."""
        return uris.join(self.root, "backfills")

    def backfill(self, name: str) -> str:
        """BackfillRuns."""
        return uris.join(self.backfills, f"{name}.json")

    @property
    def tasks(self) -> str:
        """Folder with one folder per labeled task."""
        return uris.join(self.root, "tasks")

    def task(self, name: str) -> TaskLayout:
        """Return one labeled task."""
        return TaskLayout(uris.join(self.tasks, name))

    def shard(self, shard_key: str) -> str:
        """Return the folder of one processed shard."""
        return uris.join(self.root, "shards", shard_key)

    def shard_manifest(self, shard_key: str) -> str:
        """ShardManifest."""
        return uris.join(self.shard(shard_key), "shard.json")

    def signatures(self, signature_key: str) -> str:
        """SignatureFile."""
        return uris.join(self.root, "signatures", f"{signature_key}.json")

    def signature_data(self, sha256: str) -> str:
        """SignatureFile's data, named by its content."""
        return uris.join(self.root, "signatures", f"{sha256}.npz")

    def decisions(self, sha256: str) -> str:
        """ShardDecisions."""
        return uris.join(self.root, "decisions", f"{sha256}.json")

    @property
    def installation(self) -> str:
        """Installation."""
        return uris.join(self.root, "installation.json")

    @property
    def identities(self) -> str:
        """Folder of the labels under which this store has ever requested TPUs."""
        return uris.join(self.root, "identities")

    def identity(self, label: str) -> str:
        """StoreIdentity."""
        return uris.join(self.identities, f"{label}.json")

    @property
    def tpu_places(self) -> str:
        """Folder of the projects and zones in which TPUs were ever allowed."""
        return uris.join(self.root, "places")

    def tpu_place(self, project_id: str, zone: str) -> str:
        """TpuPlace."""
        return uris.join(self.tpu_places, project_id, f"{zone}.json")

    def zone_cooldown(
        self, project_id: str, zone: str, accelerator_type: str, provisioning_model: str
    ) -> str:
        """ZoneCooldown."""
        name = f"{zone}.{accelerator_type}.{provisioning_model}.json"
        return uris.join(self.root, "cooldowns", project_id, name)

    @property
    def reapers(self) -> str:
        """Folder with one folder per owner of TPUs."""
        return uris.join(self.root, "reaper")

    def reaper_passes(self, owner: str) -> str:
        """Folder of an owner's reaper passes, one per project."""
        return uris.join(self.reapers, owner)

    def reaper_pass(self, owner: str, project_id: str) -> str:
        """ReaperPass."""
        return uris.join(self.reaper_passes(owner), f"{project_id}.json")

    @property
    def arrivals(self) -> str:
        """Folder with one folder per input pattern."""
        return uris.join(self.root, "arrivals")

    def first_look(self, corpus_key: str) -> str:
        """FirstLook at the corpus of one input pattern."""
        return uris.join(self.arrivals, corpus_key, "first_look.json")

    def arrival(self, corpus_key: str, partition: str) -> str:
        """PartitionArrival."""
        return uris.join(self.arrivals, corpus_key, "partitions", f"{partition}.json")

    @property
    def alerts(self) -> str:
        """Folder with one folder per run or other scope of alerts."""
        return uris.join(self.root, "alerts")

    def alert(self, scope: str, cause: str) -> str:
        """Alert for one cause about a run (its key) or another scope."""
        return uris.join(self.alerts, scope, f"{cause}.json")

    def alert_delivery(self, scope: str, cause: str, channel: str) -> str:
        """Delivery of that alert through one channel."""
        return uris.join(self.alerts, scope, f"{cause}.{channel}.delivered.json")

    def alert_sending(self, scope: str, cause: str, channel: str) -> str:
        """AlertSending."""
        return uris.join(self.alerts, scope, f"{cause}.{channel}.sending.json")

    def alert_cleared(self, scope: str, cause: str) -> str:
        """AlertCleared."""
        return uris.join(self.alerts, scope, f"{cause}.cleared.json")

    def watched_run(self, run_key: str) -> str:
        """WatchedRun."""
        return uris.join(self.alerts, run_key, "watched.json")

    def renting_run(self, run_key: str) -> str:
        """RentingRun."""
        return uris.join(self.alerts, run_key, "renting.json")

    @property
    def watch_pass(self) -> str:
        """WatchPass."""
        return uris.join(self.alerts, "watch.json")

    @property
    def corpus_seen(self) -> str:
        """CorpusSeen."""
        return uris.join(self.alerts, "corpus.json")

    def probe(self, unique: str) -> str:
        """Object that preflight writes and deletes to check that the store is writable."""
        return uris.join(self.root, "preflight", unique)

    def bundle(self, sha256: str) -> str:
        """Code bundle, a zip file named by its hash."""
        return uris.join(self.root, "bundles", f"{sha256}.zip")

    def job_key(self, run_key: str, generation: int) -> str:
        """JobKey; not in the run's folder: TPU VMs may neither read nor write this one."""
        return uris.join(self.root, "job_keys", run_key, f"g{generation}.json")

    def scratch(self, unique: str) -> str:
        """ShardOutcomes; the data job's workers write it, its launcher reads and deletes it."""
        return uris.join(self.root, "scratch", f"{unique}.json")


def vocabulary_model(folder: VersionLayout | LineageLayout, kind: str) -> str | None:
    """Return the file that defines a vocabulary besides ``vocab.txt``; None: no such file.

    :param kind: the setting ``vocabulary.kind``.
    """
    pieces = folder.sentencepiece_model
    files = {"sentencepiece": pieces, "t5": pieces, "bpe": folder.bpe_tokenizer}
    return files.get(kind)
