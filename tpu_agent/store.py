"""Sets apart a store that cannot be reached, which passes, from mistakes, which do not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pipeline_store.formats import FormatError


class StoreUnavailableError(RuntimeError):
    """The store could not be read or written just now; trying again later may help."""


@contextmanager
def store_call(what: str) -> Iterator[None]:
    """Turn whatever a storage client raises inside the block into one error.

    The clients' errors have no common ancestor, and on a paid TPU even a permission that is missing
    today may be granted while the training runs, so none of them ends a job. A file that was read
    but makes no sense (:class:`FormatError`) is passed on.

    :param what: the attempted action, for the message.
    :raises StoreUnavailableError: the call failed.
    """
    try:
        yield
    except FormatError:
        raise
    except Exception as error:
        raise StoreUnavailableError(f"{what} failed: {type(error).__name__}: {error}") from error
