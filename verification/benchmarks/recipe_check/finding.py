"""The result of a check of the recipe."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

Figures = dict[str, Any]


@dataclass(frozen=True)
class Finding:
    """One possible fault, with other settings and with the defaults.

    :ivar before: figures with the earlier defaults, or with a gate without the rule.
    :ivar after: the same figures with today's defaults.
    :ivar holds: whether ``before`` shows the fault and ``after`` does not.
    """

    name: str
    before: Figures
    after: Figures
    holds: bool

    def as_dict(self) -> Figures:
        """Return the finding as the object that is printed as a line of JSON."""
        return asdict(self)
