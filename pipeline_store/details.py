"""Types for what a store knows about an object without reading it."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple


class ObjectDetails(NamedTuple):
    """An object of a listing: its size in bytes and when its content or name was last written."""

    uri: str
    bytes: int
    modified: datetime


Listing = list[ObjectDetails]


class Oddity(NamedTuple):
    """An entry of a local folder that is not an object; ``what`` describes it in messages."""

    uri: str
    what: str
    is_folder: bool
