"""Records by which retention and rollback heed each other, and what is left of a version."""

from __future__ import annotations

from datetime import datetime

from pydantic import Field

from pipeline_store.formats.base import StoredFile
from pipeline_store.formats.models import ModelVersion


class RollbackMark(StoredFile):
    """``rollbacks/<version_id>.<request>.json``: a person is putting this version into use.

    Written before the version is verified and gone when it is in use. Retention looks for it after
    it has taken a version's record and before it takes anything else.
    """

    kind = "rollback-mark"

    version_id: str
    begun: datetime


class PrunedVersion(StoredFile):
    """``pruned/<version_id>.json``: the record of a version whose files are removed.

    Written before the first file goes, kept for ever: later versions name it as their parent.
    """

    kind = "pruned-version"

    model: ModelVersion
    trained: dict[str, str] = Field(
        description="by partition that it was trained on, the SHA-256 of the manifest"
    )
    pruned: datetime
    reason: str
