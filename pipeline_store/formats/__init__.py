"""The schema of every stored file, one module per subject."""

from __future__ import annotations

from pipeline_store.formats.base import FormatError, StoredFile
from pipeline_store.formats.data import (
    FileDigest,
    PartitionManifest,
    RecordFile,
    ShardManifest,
    Split,
    VocabularyInfo,
)
from pipeline_store.formats.models import (
    CheckpointManifest,
    DocumentSetScore,
    EvaluationReport,
    ModelScore,
    ModelVersion,
    ProductionPointer,
    TrainingResult,
    Verdict,
    VerdictKind,
)
from pipeline_store.formats.run import RunRecord
from pipeline_store.formats.tpu import (
    AgentHello,
    Attempt,
    ExitKind,
    Heartbeat,
    Holder,
    JobSpec,
    JobStatus,
    Ledger,
    LedgerEntry,
    Progress,
    Released,
    Reservation,
)

__all__ = [
    "AgentHello",
    "Attempt",
    "CheckpointManifest",
    "DocumentSetScore",
    "EvaluationReport",
    "ExitKind",
    "FileDigest",
    "FormatError",
    "Heartbeat",
    "Holder",
    "JobSpec",
    "JobStatus",
    "Ledger",
    "LedgerEntry",
    "ModelScore",
    "ModelVersion",
    "PartitionManifest",
    "ProductionPointer",
    "Progress",
    "RecordFile",
    "Released",
    "Reservation",
    "RunRecord",
    "ShardManifest",
    "Split",
    "StoredFile",
    "TrainingResult",
    "Verdict",
    "VerdictKind",
    "VocabularyInfo",
]
