"""What a store tells about an object without reading it."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple


class ObjectDetails(NamedTuple):
    """One object of a listing: its size in bytes and when its content or name was last written."""

    uri: str
    bytes: int
    modified: datetime


Listing = list[ObjectDetails]


class Oddity(NamedTuple):
    """What lies in a folder of this machine and is no object: ``what`` it is, for messages."""

    uri: str
    what: str
    is_folder: bool
