"""What is left of a model version that was removed because nothing needed it any more."""

from __future__ import annotations

from datetime import datetime

from pydantic import Field

from pipeline_store.formats.base import StoredFile
from pipeline_store.formats.models import ModelVersion


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
