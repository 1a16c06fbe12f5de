"""Reservation generations: what a run may rent, until when, and whether it was released."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property

from pipeline_config import RentalConfig, parse_rental_config
from pipeline_store import uris
from pipeline_store.formats import Released, Reservation, RunRecord, TpuPlace
from pipeline_store.layout import ReservationLayout, RunLayout, StoreLayout
from tpu_lifecycle.records import job_keys
from tpu_lifecycle.records.attempts import (
    AttemptRecord,
    create_attempt,
    load_attempt,
    load_attempts,
)
from tpu_lifecycle.records.installation import establish, is_at_home


class ReservationError(RuntimeError):
    """There is no such reservation, or it does not allow the request."""


class ReleasedError(ReservationError):
    """The reservation was released: nobody may create or start anything for it any more."""


class SupersededError(ReleasedError):
    """Another process took over with a newer attempt, which is the one to continue with."""


class ExpiredError(ReleasedError):
    """``budget.max_hours`` is used up: the reservation is as good as released."""


class MissingRunError(OSError):
    """The run's folder is missing, so that the absence of a file in it says nothing."""


@dataclass(frozen=True)
class OpenReservation:
    """One generation, with everything that its tasks need to know."""

    run: RunLayout
    layout: ReservationLayout
    record: Reservation

    @cached_property
    def config(self) -> RentalConfig:
        """Read the run's configuration.

        On first use: releasing does not need it, so that a version that can no longer read a run's
        configuration can still release what the run rented.
        """
        return load_config(self.run)

    @property
    def job_key(self) -> str | None:
        """Read the key of its jobs; see :func:`tpu_lifecycle.records.job_keys.find`."""
        store = StoreLayout(self.run.store_root)
        return job_keys.find(store, self.record.run_key, self.record.generation)

    def __str__(self) -> str:
        return f"reservation g{self.record.generation} of run {self.record.run_key}"

    @property
    def job_deadline(self) -> datetime:
        """Return when jobs must have ended, in time to report it before the TPU is deleted."""
        return self.record.expires_at - self._wind_down

    @property
    def wait_deadline(self) -> datetime:
        """Return until when to wait for a job's own report; after the jobs' deadline."""
        return self.record.expires_at - self._wind_down / 2

    @property
    def _wind_down(self) -> timedelta:
        lifetime = self.record.expires_at - self.record.created
        return min(timedelta(minutes=5), lifetime / 20)

    def attempts(self) -> list[AttemptRecord]:
        """Read all attempts, oldest first."""
        return load_attempts(self.layout)

    def attempt(self, number: int) -> AttemptRecord:
        """Read one attempt.

        :raises ReservationError: there is none of that number.
        """
        record = load_attempt(self.layout, number)
        if record is None:
            raise ReservationError(f"{self} has no attempt {number}; see {self.layout.attempts}.")
        return record

    def new_attempt(
        self, number: int, zone: str, *, checkpoint_step: int | None = None
    ) -> AttemptRecord:
        """Record the next attempt, before its TPU is requested.

        :param checkpoint_step: newest committed checkpoint of the run.
        :raises SupersededError: another process recorded this number first; it is in charge.
        """
        record = create_attempt(self.layout, self.record, number, zone, checkpoint_step)
        if record is None:
            raise SupersededError(
                f"{self}: another process made attempt {number} at the same time and is in charge."
            )
        return record

    @property
    def is_at_home(self) -> bool:
        """Return whether it was made in the store in which it lies, not in a copy of it."""
        return is_at_home(self.run, self.record)

    def is_released(self) -> bool:
        """Return whether the tombstone exists."""
        return uris.exists(self.layout.released)

    def check_may_create(self, attempt: int) -> None:
        """Check that this attempt may request a TPU.

        :raises ReservationError: it lies in a copy of its store.
        :raises ReleasedError: it was released.
        :raises SupersededError: a newer attempt took over.
        :raises ExpiredError: its time is over.
        """
        if not self.is_at_home:
            raise ReservationError(
                f"{self} was made in another store than {self.run.store_root}, which is a copy or "
                "was moved: its TPUs are that one's. Clear the reserve task for a new one."
            )
        if self.is_released():
            raise ReleasedError(f"{self} was released; see {self.layout.released}.")
        if datetime.now(UTC) >= self.job_deadline:
            raise ExpiredError(
                f"{self} expires at {self.record.expires_at:%F %T} UTC; budget.max_hours is used "
                "up. Clear the reserve task for a new one."
            )
        if uris.exists(self.layout.attempt(attempt + 1).record):
            raise SupersededError(f"{self}: attempt {attempt} was replaced by a newer one.")

    def release(self, reason: str) -> None:
        """Write the tombstone; from now on every process that creates a TPU deletes it."""
        Released(
            run_key=self.record.run_key,
            generation=self.record.generation,
            released=datetime.now(UTC),
            reason=reason,
        ).create(self.layout.released)


def reserve(
    store: StoreLayout, run_uri: str, *, project_id: str, owner: str, bundle_sha256: str
) -> OpenReservation:
    """Open the run's next generation and release all earlier ones. Makes no calls to the cloud.

    Concurrent callers each get their own generation, and only the last one stays open.

    :param store: where bundles and places are.
    :param run_uri: the run's folder, with ``run.json`` and ``config.json``.
    :param project_id: Google Cloud project to rent in.
    :param owner: value of the owner label; a reaper deletes only TPUs of its own owner.
    :param bundle_sha256: code bundle for the TPU VMs.
    :raises ReservationError: an earlier generation may have a TPU in another project.
    """
    run = RunLayout(run_uri)
    config = load_config(run)
    record = RunRecord.load(run.record)
    _check_project(run, project_id)
    installation = establish(store)
    for zone in config.tpu.zones:
        # First of all, so that the reaper lists every zone in which a TPU can ever be.
        TpuPlace(project_id=project_id, zone=zone).create(store.tpu_place(project_id, zone))
    generation = newest_generation(run) + 1
    while True:
        created = datetime.now(UTC)
        reservation = Reservation(
            run_key=record.run_key,
            generation=generation,
            project_id=project_id,
            zones=list(config.tpu.zones),
            owner=owner,
            installation=installation,
            dag_id=record.dag_id,
            accelerator_type=config.tpu.accelerator_type,
            slice_count=config.tpu.slice_count,
            bundle_sha256=bundle_sha256,
            created=created,
            expires_at=created + timedelta(hours=config.budget.max_hours),
            delete_grace_seconds=config.tpu.delete_grace_seconds,
            price_per_chip_hour=config.budget.price_per_chip_hour,
            currency=config.budget.currency,
            price_date=config.budget.price_date,
            provisioning_model=config.tpu.provisioning_model,
            on_demand_price_per_chip_hour=config.budget.on_demand_price_per_chip_hour,
        )
        layout = run.reservation(generation)
        # Before the reservation: a process that finds it may use it at once.
        job_keys.establish(store, record.run_key, generation)
        if reservation.create(layout.record):
            break
        generation += 1
    opened = OpenReservation(run, layout, reservation)
    for earlier in earlier_reservations(opened):
        earlier.release(f"superseded by generation {generation}")
    return opened


def _check_project(run: RunLayout, project_id: str) -> None:
    """Refuse a change of project while a TPU may be left in the earlier one.

    All TPUs of a run are released through one connection to one project.
    """
    for number in range(1, newest_generation(run) + 1):
        layout = run.reservation(number)
        earlier = Reservation.load(layout.record).project_id
        # The ledger is written when all of a generation is confirmed gone.
        if earlier != project_id and not uris.exists(layout.ledger):
            raise ReservationError(
                f"Run {run.root} is to rent in project {project_id}, but its reservation "
                f"g{number} in project {earlier} is not given back yet. Run the delete task "
                f"first, or reserve in {earlier} again."
            )


def write_tombstones(run_uri: str, reason: str) -> int:
    """Release all generations of a run; return the newest one's number, 0 when there is none.

    Needs nothing but the store: neither the run's configuration nor a reservation is read.
    """
    run = RunLayout(run_uri)
    newest = newest_generation(run)
    for number in range(1, newest + 1):
        Released(
            run_key=run_uri.rstrip("/").rpartition("/")[2],
            generation=number,
            released=datetime.now(UTC),
            reason=reason,
        ).create(run.reservation(number).released)
    return newest


def newest_generation(run: RunLayout) -> int:
    """Return the number of the newest generation; 0 when there is none."""
    generation = 0
    while uris.exists(run.reservation(generation + 1).record):
        generation += 1
    return generation


def open_reservation(run_uri: str, generation: int | None = None) -> OpenReservation:
    """Read a generation of a run.

    :param generation: None: the newest.
    :raises ReservationError: there is none.
    :raises MissingRunError: the store is missing, or this run in it.
    """
    run = RunLayout(run_uri)
    number = newest_generation(run) if generation is None else generation
    record = Reservation.load_or_none(run.reservation(number).record) if number else None
    if record is None:
        check_there(run)
        raise ReservationError(
            f"Run {run_uri} has no reservation{f' g{number}' if number else ''}; run the reserve "
            "task first."
        )
    return OpenReservation(run, run.reservation(number), record)


def check_there(run: RunLayout) -> None:
    """Check that the run's folder exists, so that a file it does not have never existed.

    :raises MissingRunError: the store is missing, or this run in it.
    """
    if not uris.exists(run.record):
        raise MissingRunError(
            f"There is no {run.record}, so nothing tells whether a TPU was reserved. Is the store "
            "mounted, and is its bucket there? It is tried again. If the run's folder is lost, the "
            "reaper deletes its TPU by label."
        )


def earlier_reservations(reservation: OpenReservation) -> list[OpenReservation]:
    """Read all generations of the run before this one, oldest first."""
    return [
        open_reservation(reservation.run.root, number)
        for number in range(1, reservation.record.generation)
    ]


def load_config(run: RunLayout) -> RentalConfig:
    """Read a run's configuration.

    :raises FileNotFoundError: the validate task has not run.
    """
    return parse_rental_config(uris.read(run.config), run.config)
