"""The list of the examples that cannot be used, one JSON object a line."""

from __future__ import annotations

import json

from corpus.labelled.problems import Unusable
from corpus.rows.record_files import LocalFile


class DeadLetters(LocalFile):
    """Writes ``split``, ``file``, ``line``, ``reason``, ``detail`` of each; never the text.

    Use as a context manager.
    """

    def add(self, split: str, uri: str, unusable: Unusable) -> None:
        """Append one example."""
        letter = {
            "split": str(split),
            "file": uri,
            "line": unusable.line,
            "reason": str(unusable.reason),
            "detail": unusable.detail,
        }
        self.write((json.dumps(letter) + "\n").encode())
