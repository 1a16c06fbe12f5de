"""Identifies the installation that a TPU belongs to: the store that it was requested from.

Installations that share project and owner may have runs with equal ids. They are distinguished by
a random id in the store together with the store's location, so a copied store is another one.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from pipeline_store import uris
from pipeline_store.formats import Installation, Reservation, StoreIdentity
from pipeline_store.identity import installation_label, place_digest
from pipeline_store.layout import RunLayout, StoreLayout
from tpu_lifecycle.service.labels import INSTALLATION

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class NewIdentity:
    """A change of a store's identity since TPUs were first requested from it.

    :ivar label: of its TPUs from now on; empty while there is none.
    :ivar text: how that came about, and what it means for the earlier TPUs.
    """

    label: str
    text: str


def establish(store: StoreLayout) -> str:
    """Return the label value of a store's TPUs; create its id file when it is missing.

    :raises FormatError: the id file, or a record of an identity, is damaged.
    """
    is_made = Installation(id=uuid.uuid4().hex).create(store.installation)
    label = installation_label(store.root, Installation.load(store.installation).id)
    if not uris.exists(store.identity(label)):
        is_first = not uris.list_files(store.identities)
        # An earlier version, which recorded no identities, may already have had one.
        is_first &= not (is_made and uris.list_files(store.tpu_places))
        StoreIdentity(
            label=label, root=store.root, since=datetime.now(UTC), is_first=is_first
        ).create(store.identity(label))
        if (new := new_identity(store)) is not None:
            _log.error("%s", new.text)
    return label


def new_identity(store: StoreLayout) -> NewIdentity | None:
    """Return the change of a store's identity since TPUs were first requested from it, or None.

    :raises FormatError: the id file, or a record of an identity, is damaged.
    """
    found = Installation.load_or_none(store.installation)
    label = installation_label(store.root, found.id) if found else ""
    known = [StoreIdentity.load(uri) for uri in uris.list_files(store.identities)]
    own = next((one for one in known if one.label == label), None)
    others = [one for one in known if one.label != label]
    if own.is_first if own else not (others or (not found and uris.list_files(store.tpu_places))):
        return None
    digest = place_digest(store.root)
    elsewhere = sorted({one.root for one in others if place_digest(one.root) != digest})
    name = f"{store.root} has a NEW IDENTITY" + (f", {label}" if label else " with the next TPU")
    if elsewhere and not any(place_digest(one.root) == digest for one in others):
        how = (
            f"moved or copied, TPUs were asked for before from {', '.join(elsewhere)}. Those "
            "are not this store's: neither its runs nor its reaper delete them. The earlier place "
            "has to give them back, or python -m tpu_lifecycle reap-foreign once they are expired; "
            "clear the reserve task of runs that shall go on here."
        )
    else:
        how = (
            f"{store.installation} was lost, although TPUs had been asked for. Those of earlier "
            "reservations stay this store's own. Who deleted the file?"
        )
    return NewIdentity(label, f"{name}: {how}")


@dataclass(frozen=True)
class Identity:
    """A store's identity as far as it can be read.

    :param label: of its TPUs; None when the id file cannot be read, or is missing.
    """

    store: StoreLayout
    label: str | None

    @classmethod
    def read(cls, store: StoreLayout, problems: list[str]) -> Identity:
        """Read a store's identity; a failure is a reported problem and stops nothing.

        :param problems: gets a line when the id file cannot be read.
        """
        try:
            found = Installation.load_or_none(store.installation)
        except Exception as error:  # noqa: BLE001 - what has expired is deleted all the same
            problems.append(f"cannot read {store.installation}: {error!r}")
            found = None
        return cls(store, installation_label(store.root, found.id) if found else None)

    def has(self, labels: Mapping[str, str], find: Callable[[], Reservation | None]) -> bool:
        """Return whether a TPU is this store's.

        While the id cannot be read, the store's location alone decides. A label with this location
        but another id comes from an id file that was lost: then the store must know the TPU's
        reservation. The same holds for a TPU without the label, from a version that set none.

        :param find: returns the reservation that the labels name, if it is in this store.
        """
        value = labels.get(INSTALLATION)
        if value is not None:
            if value == self.label:
                return True
            if value.partition("-")[0] != place_digest(self.store.root):
                return False
            if self.label is None:
                return True
        reservation = find()
        return reservation is not None and reservation.installation == value


def is_at_home(run: RunLayout, reservation: Reservation) -> bool:
    """Return whether a reservation was made in the store in which it lies, not in a copy of it."""
    if reservation.installation is None:
        return True
    return reservation.installation.partition("-")[0] == place_digest(run.store_root)
