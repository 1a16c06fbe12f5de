"""Which installation a TPU belongs to: the store that it was asked for from.

Installations that share project and owner may have runs of equal ids. What tells them apart is a
random id in the store together with the store's place, so that a copied store is another one.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass

from pipeline_store.formats import Installation, Reservation
from pipeline_store.identity import installation_label, place_digest
from pipeline_store.layout import RunLayout, StoreLayout
from tpu_lifecycle.service.labels import INSTALLATION


def establish(store: StoreLayout) -> str:
    """Return the label value of a store's TPUs; its id file is made when it is missing.

    :raises FormatError: the id file is damaged.
    """
    Installation(id=uuid.uuid4().hex).create(store.installation)
    return installation_label(store.root, Installation.load(store.installation).id)


@dataclass(frozen=True)
class Identity:
    """A store's identity as far as it can be read.

    :param label: of its TPUs; None when the id file cannot be read, or is not there.
    """

    store: StoreLayout
    label: str | None

    @classmethod
    def read(cls, store: StoreLayout, problems: list[str]) -> Identity:
        """Read it; what cannot be read is a problem and stops nothing.

        :param problems: gets a line when it cannot be read.
        """
        try:
            found = Installation.load_or_none(store.installation)
        except Exception as error:  # noqa: BLE001 - what has expired is deleted all the same
            problems.append(f"cannot read {store.installation}: {error!r}")
            found = None
        return cls(store, installation_label(store.root, found.id) if found else None)

    def has(self, labels: Mapping[str, str], reservation: Reservation | None) -> bool:
        """Return whether a TPU is this store's.

        While the id cannot be read, the store's place alone decides. A TPU without the label was
        asked for by a program that set none: then the store must know its reservation.

        :param reservation: that the labels name, if it is in this store.
        """
        value = labels.get(INSTALLATION)
        if value is None:
            return reservation is not None and reservation.installation is None
        if self.label is None:
            return value.partition("-")[0] == place_digest(self.store.root)
        return value == self.label


def is_at_home(run: RunLayout, reservation: Reservation) -> bool:
    """Return whether a reservation was made in the store in which it lies, not in a copy of it."""
    if reservation.installation is None:
        return True
    return reservation.installation.partition("-")[0] == place_digest(run.store_root)
