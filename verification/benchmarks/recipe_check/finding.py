"""What a check of the recipe finds."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

Figures = dict[str, Any]


@dataclass(frozen=True)
class Finding:
    """One thing that could go wrong, with other settings and with the defaults.

    :ivar before: figures of the settings that were the default, or of a gate without the rule.
    :ivar after: the same figures of today's defaults.
    :ivar holds: whether ``before`` shows the fault and ``after`` does not.
    """

    name: str
    before: Figures
    after: Figures
    holds: bool

    def as_dict(self) -> Figures:
        """Return what is printed as a line of JSON."""
        return asdict(self)
