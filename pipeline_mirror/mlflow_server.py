"""Wraps an MLflow server for the mirror; the only module that imports ``mlflow``.

Every method checks what exists and adds what is missing, so that an interrupted pass can be
repeated.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from mlflow import entities
from mlflow.entities import LifecycleStage, ViewType
from mlflow.exceptions import MlflowException, RestException
from mlflow.tracking import MlflowClient
from mlflow.utils.mlflow_tags import MLFLOW_DATASET_CONTEXT

from pipeline_mirror.errors import MirrorError, ServerAwayError
from pipeline_mirror.models import ALIAS, REMOVED, VERSION_ID
from pipeline_mirror.runs import ENDED, SOURCE_TYPE, TAG, UNTIL, Dataset, Number, RunFacts

T = TypeVar("T")

STORE, RUN_KEY = f"{TAG}store", f"{TAG}run_key"

_PARAMS, _METRICS, _DATASETS, _FOUND = 100, 1000, 1000, 1000
"""Most items that the server accepts or returns in one request."""

_MOST_DESCRIPTION = 5000
"""Most characters of a description that MLflow's database stores."""

_OWN_FAULT = {"INVALID_PARAMETER_VALUE", "BAD_REQUEST", "RESOURCE_DOES_NOT_EXIST", "INVALID_STATE"}
"""MLflow's error codes that mean a problem with the request and not with the server."""


@dataclass(frozen=True)
class MirroredRun:
    """A run that MLflow has.

    :ivar is_deleted: whether a person has deleted it there.
    :ivar copies: ids of duplicates of the run, which concurrent passes have created.
    """

    id: str
    tags: Mapping[str, str]
    is_deleted: bool
    copies: tuple[str, ...] = ()

    @property
    def ended(self) -> str:
        """Return the identity of the mirrored outcome; empty: none."""
        return self.tags.get(ENDED, "")

    @property
    def until(self) -> str:
        """Return the time of the newest record of its training that MLflow has; empty: none."""
        return self.tags.get(UNTIL, "")


@dataclass(frozen=True)
class MirroredVersion:
    """A version that MLflow has.

    :ivar marks: whether each copy is marked as one that the store no longer has, by MLflow's
        number; concurrent passes may have created several copies.
    """

    marks: Mapping[str, bool]

    @property
    def number(self) -> str:
        """Return MLflow's number of the first copy."""
        return min(self.marks, key=int)


class MlflowServer:
    """A client of an MLflow server, with the label of this store on it.

    :param uri: the server's address.
    :param store_label: identifies this store among others that are mirrored there.
    """

    def __init__(self, uri: str, store_label: str) -> None:
        self._client = MlflowClient(tracking_uri=uri)
        self._label = store_label

    def experiment(self, name: str) -> str:
        """Return the id of an experiment, which is created if it is missing.

        :raises MirrorError: it was deleted, or belongs to another store.
        :raises ServerAwayError: the server is unavailable.
        """
        with _asking():
            found = self._client.get_experiment_by_name(name)
            if found is None:
                return str(self._client.create_experiment(name, tags={STORE: self._label}))
        if found.lifecycle_stage == LifecycleStage.DELETED:
            raise MirrorError(
                f"MLflow's experiment {name!r} was deleted there: restore it, delete it for good "
                "(`mlflow gc`), or set another REPRETRAIN_MLFLOW_PREFIX."
            )
        self._require_own(f"experiment {name!r}", found.tags)
        return str(found.experiment_id)

    def runs(self, experiment_id: str) -> dict[str, MirroredRun]:
        """Return the runs of an experiment by key, those that were deleted there, too."""
        found: dict[str, list[Any]] = defaultdict(list)
        pages = self._pages(
            lambda token: self._client.search_runs(
                [experiment_id],
                run_view_type=ViewType.ALL,
                order_by=["attributes.start_time DESC"],
                max_results=_FOUND,
                page_token=token,
            )
        )
        for run in pages:
            if RUN_KEY in run.data.tags:
                found[run.data.tags[RUN_KEY]].append(run)
        return {key: _one_of(copies) for key, copies in found.items()}

    def delete_run(self, run_id: str) -> None:
        """Delete a run, like the button on its page; it can be restored there."""
        with _asking():
            self._client.delete_run(run_id)

    def begin_run(self, experiment_id: str, facts: RunFacts) -> str:
        """Create a run and return its id."""
        with _asking():
            run = self._client.create_run(
                experiment_id, start_time=facts.start, tags=facts.tags, run_name=facts.name
            )
        return str(run.info.run_id)

    def write_run(self, run_id: str, facts: RunFacts, marks: Mapping[str, str]) -> None:
        """Add the known facts to a run.

        :param marks: tags that record which facts were added; they are written last.
        """
        with _asking():
            known = self._client.get_run(run_id)
            new = {
                name: value for name, value in facts.params.items() if name not in known.data.params
            }
            for names in _parts(sorted(new), _PARAMS):
                self._client.log_batch(
                    run_id, params=[entities.Param(name, new[name]) for name in names]
                )
            for numbers in _parts(facts.numbers, _METRICS):
                self._client.log_batch(run_id, metrics=[_metric(number) for number in numbers])
            for datasets in _parts(facts.datasets, _DATASETS):
                self._client.log_inputs(run_id, datasets=[_input(one) for one in datasets])
            if facts.end is not None:
                self._client.set_terminated(run_id, status=facts.status, end_time=facts.end)
            elif known.info.status != facts.status:
                self._client.update_run(run_id, status=facts.status)
            tags = [entities.RunTag(name, value) for name, value in {**facts.tags, **marks}.items()]
            self._client.log_batch(run_id, tags=tags)

    def registered_model(self, name: str) -> Mapping[str, str]:
        """Return the tags of a registered model, which is created if it is missing.

        :raises MirrorError: it belongs to another store.
        """
        with _asking():
            try:
                found = self._client.get_registered_model(name)
            except RestException as error:
                if error.error_code != "RESOURCE_DOES_NOT_EXIST":
                    raise
                found = self._client.create_registered_model(name, tags={STORE: self._label})
        self._require_own(f"registered model {name!r}", found.tags)
        return dict(found.tags)

    def versions(self, name: str) -> dict[str, MirroredVersion]:
        """Return the versions of a registered model, by the ids of the store."""
        query = f"name = '{name}'"
        pages = self._pages(
            lambda token: self._client.search_model_versions(query, _FOUND, page_token=token)
        )
        found: dict[str, dict[str, bool]] = defaultdict(dict)
        for version in pages:
            if VERSION_ID in version.tags:
                is_removed = version.tags.get(REMOVED) == "true"
                found[version.tags[VERSION_ID]][str(version.version)] = is_removed
        return {version_id: MirroredVersion(marks) for version_id, marks in found.items()}

    def add_version(
        self,
        name: str,
        *,
        source: str,
        run_id: str | None,
        tags: Mapping[str, str],
        description: str,
    ) -> str:
        """Create a version and return MLflow's number of it."""
        with _asking():
            made = self._client.create_model_version(
                name,
                source,
                run_id,
                tags=dict(tags),
                description=description[:_MOST_DESCRIPTION],
            )
        return str(made.version)

    def mark_removed(self, name: str, number: str, *, is_removed: bool) -> None:
        """Mark a version as one that the store no longer has, or remove the mark."""
        with _asking():
            self._client.set_model_version_tag(name, number, REMOVED, str(is_removed).lower())

    def put_in_use(self, name: str, number: str, tags: Mapping[str, str]) -> None:
        """Set the alias to a version, and the tags that explain it."""
        with _asking():
            self._client.set_registered_model_alias(name, ALIAS, number)
            for key, value in tags.items():
                self._client.set_registered_model_tag(name, key, value)

    def in_use(self, name: str) -> str | None:
        """Return the version number of the alias; None: there is no such alias."""
        with _asking():
            number = self._client.get_registered_model(name).aliases.get(ALIAS)
        return None if number is None else str(number)

    def _pages(self, ask: Callable[[str | None], Any]) -> Iterator[Any]:
        token: str | None = None
        while True:
            with _asking():
                page = ask(token)
            yield from page
            token = page.token
            if not token:
                return

    def _require_own(self, what: str, tags: Mapping[str, str]) -> None:
        if tags.get(STORE) != self._label:
            raise MirrorError(
                f"MLflow's {what} was not made by the mirror of this store, {self._label}, but "
                f"{'of ' + tags[STORE] if STORE in tags else 'by somebody else'}: two would change "
                "each other's. Set REPRETRAIN_MLFLOW_PREFIX to what else its names here shall "
                "begin with, such as `staging-`."
            )


@contextmanager
def _asking() -> Iterator[None]:
    """Convert MLflow's errors to those of the mirror.

    :raises MirrorError: the request cannot be fulfilled.
    :raises ServerAwayError: the server is unavailable, denies access, or is broken.
    """
    try:
        yield
    except MlflowException as error:
        text = str(error).partition("\n")[0]
        if isinstance(error, RestException) and error.error_code in _OWN_FAULT:
            raise MirrorError(f"MLflow refuses: {text}") from error
        raise ServerAwayError(f"MLflow cannot be asked: {text}") from error


def _one_of(copies: list[Any]) -> MirroredRun:
    """Return the first of a run's copies, by MLflow's id; undeleted ones come first."""

    def is_deleted(run: Any) -> bool:
        return bool(run.info.lifecycle_stage == LifecycleStage.DELETED)

    first, *others = sorted(copies, key=lambda run: (is_deleted(run), run.info.run_id))
    return MirroredRun(
        id=first.info.run_id,
        tags=first.data.tags,
        is_deleted=is_deleted(first),
        copies=tuple(run.info.run_id for run in others if not is_deleted(run)),
    )


def _parts(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    for begin in range(0, len(items), size):
        yield items[begin : begin + size]


def _metric(number: Number) -> entities.Metric:
    return entities.Metric(number.name, number.value, number.time, number.step)


def _input(dataset: Dataset) -> entities.DatasetInput:
    inner = entities.Dataset(
        name=dataset.name,
        digest=dataset.digest,
        source_type=SOURCE_TYPE,
        source=dataset.source,
        profile=dataset.profile,
    )
    return entities.DatasetInput(
        inner, [entities.InputTag(MLFLOW_DATASET_CONTEXT, dataset.context)]
    )
