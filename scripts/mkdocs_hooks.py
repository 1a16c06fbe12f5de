"""What the documentation's site needs beside mkdocs.yml."""

import re
from pathlib import Path
from typing import Any

_TESTED_DIFFERENTLY = re.compile(r"^( *```[a-z]+) [a-z ]+$", re.MULTILINE)
_PICTURE = re.compile(r"!\[(?P<text>[^]]*)\]\((?P<path>[^)#]+)\.png\)")


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Return a page as the site's converter needs it.

    In Markdown a block may have words behind its language, such as ``bash cloud``, that tell the
    tests how to run it; the converter would not take it for a block. Of a picture that there is for
    dark pages, too, it gets both: the theme shows one.
    """
    folder = Path(page.file.abs_src_path).parent

    def both(match: re.Match[str]) -> str:
        text, path = match["text"], match["path"]
        if not (folder / f"{path}-dark.png").is_file():
            return match[0]
        return f"![{text}]({path}.png#only-light)![{text}]({path}-dark.png#only-dark)"

    return _PICTURE.sub(both, _TESTED_DIFFERENTLY.sub(r"\1", markdown))
