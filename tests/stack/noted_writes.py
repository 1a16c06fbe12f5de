"""Imported by every Python process of a TPU VM: notes what it writes in the store, by audit events.

Beside it lie ``store``, a file with the store's path, and ``writes``, where each object comes that
was written, replaced or deleted, once for each process, relative to the store.
"""

import os
import sys
from pathlib import Path
from typing import Any

_HERE = Path(__file__).parent
_STORE = (_HERE / "store").read_text()
_LOG = os.open(_HERE / "writes", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
# Which argument is the object: what is made of another file is what counts.
_PLACES = {"os.rename": 1, "os.link": 1, "os.remove": 0, "os.truncate": 0}
_noted: set[str] = set()


def _note(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "open":
        if not (isinstance(arguments[2], int) and arguments[2] & _WRITING):
            return
        place = arguments[0]
    elif event in _PLACES:
        place = arguments[_PLACES[event]]
    else:
        return
    if not isinstance(place, str | bytes | os.PathLike):
        return
    path = os.path.abspath(os.fsdecode(place))
    # Objects take shape beside their place; on Cloud Storage there is no such thing.
    if path.startswith(_STORE) and ".aside-" not in path and path not in _noted:
        _noted.add(path)
        os.write(_LOG, f"{path.removeprefix(_STORE)}\n".encode())


sys.addaudithook(_note)
