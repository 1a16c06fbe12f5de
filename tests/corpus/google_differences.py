"""Where BERT's text cleaning by Hugging Face, and so ours, differs from Google's own; and why.

Each entry: the reason, and the characters, as ranges of code points. Everything else is equal.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Difference:
    """Characters that become other words for one reason."""

    reason: str
    ranges: str
    only_lower_case: bool = False

    def codes(self) -> Iterator[int]:
        """Yield the code points."""
        for part in self.ranges.split():
            first, _, last = part.partition("-")
            yield from range(int(first, 16), int(last or first, 16) + 1)


DIFFERENCES = [
    Difference(
        "Of sigmas at the end of a word, Google's lower-casing makes the final form.",
        "3a3",
        only_lower_case=True,
    ),
    Difference(
        "Hugging Face leaves out characters for private use, which have no meaning of their own.",
        "e000-f8ff f0000-ffffd 100000-10fffd",
    ),
    Difference(
        "Hugging Face's list of ideographs has a gap, so that these do not stand alone.",
        "2b820-2b91f",
    ),
    Difference(
        "Punctuation and format characters that Unicode had not yet, or classed in another way, in "
        "version 8, which Hugging Face's tables are of.",
        """61d 890-891 8e2 9fd a76 c77 c84 166d 1b7d-1b7e 2e43-2e4f 2e52-2e5d 10ead 10f55-10f59
        10f86-10f89 110cd 111c9 1144b-1144f 1145a-1145b 1145d 11660-1166c 116b9 1183b 11944-11946
        119e2 11a3f-11a46 11a9a-11a9c 11a9e-11aa2 11c41-11c45 11c70-11c71 11ef7-11ef8 11fff
        12ff1-12ff2 13430-13438 16e97-16e9a 16fe2 1e95e-1e95f""",
    ),
    Difference(
        "Accents of the same kind: Hugging Face does not know that they are some.",
        """7fd 898-89f 8ca-8e1 9fe afa-aff b55 c04 c3c d00 d3b-d3c d81 eba 1734 180f 1885-1886
        1abf-1ace 1df6-1dfb a82c a8c5 a8ff a9bd 10d24-10d27 10eab-10eac 10f46-10f50 10f82-10f85
        11070 11073-11074 110c2 111cf 1123e 1133b 11438-1143f 11442-11444 11446 1145e 1182f-11837
        11839-1183a 11938 1193b-1193c 1193e 11943 119d4-119d7 119da-119db 119e0 11a01-11a0a
        11a33-11a38 11a3b-11a3e 11a47 11a51-11a56 11a59-11a5b 11a8a-11a96 11a98-11a99 11c30-11c36
        11c38-11c3d 11c3f 11c92-11ca7 11caa-11cb0 11cb2-11cb3 11cb5-11cb6 11d31-11d36 11d3a
        11d3c-11d3d 11d3f-11d45 11d47 11d90-11d91 11d95 11d97 11ef3-11ef4 16f4f 16fe4 1cf00-1cf2d
        1cf30-1cf46 1e000-1e006 1e008-1e018 1e01b-1e021 1e023-1e024 1e026-1e02a 1e130-1e136 1e2ae
        1e2ec-1e2ef 1e944-1e94a""",
        only_lower_case=True,
    ),
]
