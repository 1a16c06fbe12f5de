"""Reads the file that describes a task, if a request may, and explains how to fix a missing one."""

from __future__ import annotations

import re

from pipeline_config import ConfigError
from pipeline_config.patterns import NAME
from pipeline_store import request_paths, uris
from pipeline_store.layout import StoreLayout
from pipeline_store.request_paths import OutsideRootsError

_NAMED = 5


def check_name(name: str) -> None:
    """Check that a name is allowed for a task.

    :raises ConfigError: it is not.
    """
    if not re.fullmatch(NAME, name):
        line = "that is no task's name; use a-z, 0-9 and '-', and begin with a letter."
        raise ConfigError([f"task {name!r}: {line}"])


def read_description(store: StoreLayout, name: str, uri: str) -> bytes:
    """Return the content of the file that describes a task.

    :param uri: URI of the file, in the task's folder.
    :raises ConfigError: there is none, or it lies outside of what a request may read.
    """
    try:
        return request_paths.read(uri, model=True)
    except OutsideRootsError as error:
        raise ConfigError([f"task {name!r}: {error}"]) from error
    except FileNotFoundError as error:
        raise ConfigError([f"task {name!r}: {_absent(store, uri)}"]) from error


def _absent(store: StoreLayout, uri: str) -> str:
    found = [item.uri for item in uris.list_named(store.tasks, uri.rpartition("/")[2])]
    names = sorted(uri.split("/")[-2] for uri in found)
    have = f"The store has {', '.join(names[:_NAMED])}" if names else "The store has no task"
    return f"{uri} does not exist. {have}; write the file, or name another task."
