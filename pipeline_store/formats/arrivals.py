"""What is remembered of a corpus's partitions, so that each is announced once."""

from __future__ import annotations

from datetime import datetime

from pydantic import Field

from pipeline_store.formats.base import StoredFile


class FirstLook(StoredFile):
    """``first_look.json``: what lay in the corpus before anybody watched it. Written once.

    None of it is announced as new: an installation that begins to watch a corpus of many years
    would start a run for each of its partitions.
    """

    kind = "first-look"

    pattern: str = Field(description="corpus.input_pattern that was looked for")
    time: datetime
    listings: dict[str, str] = Field(description="SHA-256 of each partition's listing")


class PartitionArrival(StoredFile):
    """``<partition>.json``: how a partition was last seen, and which run it was given to."""

    kind = "partition-arrival"

    sequence: int = Field(description="counts the writes")
    partition: str
    listing_sha256: str = Field(description="of the names and sizes of its files")
    files: int
    bytes: int
    since: datetime = Field(description="look that first saw this listing")
    run_id: str | None = Field(description="run of the main DAG that was started last for it")
