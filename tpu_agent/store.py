"""Distinguishes an unreachable store, which is temporary, from mistakes, which are not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pipeline_store.formats import FormatError


class StoreUnavailableError(RuntimeError):
    """The store could not be read or written just now; a later retry may help."""


@contextmanager
def store_call(what: str) -> Iterator[None]:
    """Turn any error of a storage client inside the block into one class of error.

    The clients' errors have no common ancestor, and on a paid TPU even a missing permission may be
    granted while the training runs, so none of them ends a job. The error of a file that was read
    but is damaged (:class:`FormatError`) is passed on.

    :param what: the attempted action, for the message.
    :raises StoreUnavailableError: the call failed.
    """
    try:
        yield
    except FormatError:
        raise
    except Exception as error:
        raise StoreUnavailableError(f"{what} failed: {type(error).__name__}: {error}") from error
