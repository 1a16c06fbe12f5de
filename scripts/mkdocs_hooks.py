"""What the documentation's site needs beside mkdocs.yml."""

import re
from typing import Any

_TESTED_DIFFERENTLY = re.compile(r"^( *```[a-z]+) [a-z ]+$", re.MULTILINE)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Return a page without the words that tell the tests how to run its blocks.

    In Markdown a block may have words behind its language, such as ``bash cloud``. The site's
    converter would not take it for a block.
    """
    return _TESTED_DIFFERENTLY.sub(r"\1", markdown)
