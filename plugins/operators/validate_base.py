"""Base of the first task of all runs: checks of the cloud, refusals, the records of a run."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Generic

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowException, AirflowSkipException

from hooks.notes import about_run, backfill_of, leave_note, short_reason
from model_registry import outcomes
from operators.failures import RequestRefused
from pipeline_config import (
    ConfigError,
    FinetuningConfig,
    PipelineConfig,
    parse_config,
    parse_finetuning_config,
)
from pipeline_config.loading import Config
from pipeline_config.requests import with_request
from pipeline_config.settings import load_settings
from pipeline_config.unquoted import one_line
from pipeline_store import identity, request_paths, uris
from pipeline_store.formats import FormatError, OutcomeKind, RunRecord, RunRefusal
from pipeline_store.layout import RunLayout, StoreLayout
from preflight.request import outside_problems, request_roots
from tpu_lifecycle.control.reaper_status import reaper_problem

if TYPE_CHECKING:
    from airflow.sdk import Context

    from tpu_lifecycle.service.backend import TpuBackend

STARTED_BY_A_DAG = "operator_triggered"
"""The type of a run that a task of another DAG has started; Airflow gives it to no other run."""

REAPER_MAX_AGE = timedelta(hours=1)
"""Age of the newest pass above which the reaper is reported: it should start every ten minutes."""


@dataclass(frozen=True)
class Asked(Generic[Config]):
    """A run's request.

    :ivar config: the configuration without the settings that were dropped.
    :ivar violations: why the request is refused.
    :ivar dropped: names of settings that break a rule.
    """

    config: Config
    violations: list[str] = field(default_factory=list)
    dropped: frozenset[str] = frozenset()

    def all_problems(self, found: list[str]) -> list[str]:
        """Return the violations, and those further problems that name no dropped setting."""
        settings = [
            name for name in self.dropped if "." in name
        ]  # not misspelled names, which may be common words
        return self.violations + [line for line in found if not _named(settings, [line])]


class ValidateOperator(BaseOperator):
    """Refuses a bad request within seconds, before anything is spent; records a good one.

    Airflow's form checks single values. Unknown names, nested values, impossible combinations and
    missing inputs pass it, so they are refused here, one line each. The checks of
    ``python -m preflight cloud`` run as far as the connection's account allows; a service that does
    not answer only causes a warning. An unusable connection is refused with its name. A dry run
    (``run.dry_run``) is skipped once everything has been checked.

    :param store_uri: root of the store.
    :param preset: the configuration that the form's values override.
    :param gcp_conn_id: connection whose project's TPU service is asked; see
        :class:`hooks.tpu.TpuHook`.
    """

    def __init__(
        self,
        *,
        store_uri: str,
        preset: str,
        gcp_conn_id: str = "google_cloud_default",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.store_uri = store_uri
        self.preset = preset
        self.gcp_conn_id = gcp_conn_id

    def execute(self, context: Context) -> Any:
        """Check the request and write ``run.json``, ``config.json`` and ``estimate.json``."""
        dag_run = context["dag_run"]
        store = StoreLayout(self.store_uri)
        run = store.run(identity.run_key(dag_run.dag_id, dag_run.run_id))
        try:
            with request_paths.limited_to(request_roots(load_settings(), store)):
                result = self._validate(context, store, run)
        except ConfigError as error:
            refused = self._refusal(error.violations)
        except RequestRefused as error:
            refused = error
        except AirflowSkipException as skip:
            leave_note(context, f"Skipped: {skip}")
            raise
        else:
            record = RunRecord.load(run.record)
            leave_note(context, about_run(record.partition, record.lineage_id))
            return result
        self._keep_refusal(context, run, refused.problems)
        # Without cause and traceback: the reasons are in the log already.
        raise refused.with_traceback(None)

    @abstractmethod
    def _validate(self, context: Context, store: StoreLayout, run: RunLayout) -> Any:
        """Check and record the request.

        :raises ConfigError: it breaks a rule.
        """

    def _asked(
        self, preset: Config, conf: Mapping[str, Any], store: StoreLayout, *, is_own: bool
    ) -> Asked[Config]:
        """Return a run's request, even if it is refused.

        Settings that break a rule then keep the preset's values, so that the checks of files and of
        the cloud, which need a configuration, report all other reasons in the same round.

        :param is_own: see :meth:`_requested`.
        :raises ConfigError: nothing usable is left.
        """

        def ask(wanted: Mapping[str, Any]) -> Config:
            return self._requested(preset, wanted, store, is_own=is_own)

        violations: dict[str, None] = {}
        rest = dict(conf)
        while True:
            try:
                usable = ask(rest)
            except ConfigError as error:
                dropped = conf.keys() - rest.keys()
                # What does not fit a setting that was dropped may fit what was asked for.
                own = [line for line in error.violations if not _named(dropped, [line])]
                violations |= dict.fromkeys(own)
                culprits = _culprits(rest, error.violations, ask)
                if not culprits:
                    raise ConfigError(list(violations)) from None
                for name in culprits:
                    del rest[name]
            else:
                return Asked(usable, list(violations), frozenset(conf.keys() - rest.keys()))

    @staticmethod
    def _requested(
        preset: Config, conf: Mapping[str, Any], store: StoreLayout, *, is_own: bool
    ) -> Config:
        """Return the requested configuration: the preset, overridden by the run's conf.

        :param is_own: whether a DAG of the installation made the conf from an event, so that the
            settings in it are the installation's own.
        :raises ConfigError: the conf changes a setting that only the installation may set, names
            files that requests may not read, or breaks a rule.
        """
        settings = load_settings()
        locked = () if is_own else settings.locked_settings
        config = with_request(preset, conf, locked)
        problems = list(outside_problems(config, request_roots(settings, store), store))
        if problems:
            raise ConfigError(problems)
        return config

    def _cloud_problems(self, config: PipelineConfig, store: StoreLayout) -> list[str]:
        """Return the problems that the checks of ``python -m preflight cloud`` find.

        The checks that need an account run only if the connection has one: an emulator has none.
        """
        # Imported late: Google's libraries are slow to load, and DAG files import this module.
        from google.auth.credentials import AnonymousCredentials

        from preflight.cloud import catalogue
        from preflight.cloud.apis import GoogleApis
        from preflight.cloud.site import Site
        from preflight.findings import problems

        try:
            backend, credentials = self._connect()
        except ConfigError as error:
            return error.violations
        apis = GoogleApis(backend.project_id, lambda: credentials)
        site = Site(config, store, apis, lambda: backend)
        rows = [*catalogue.make([catalogue.AIRFLOW_CHECK], None)]
        if not isinstance(credentials, AnonymousCredentials):
            rows += catalogue.make(catalogue.ACCOUNT_CHECKS, site)
        rows += catalogue.make(catalogue.TPU_CHECKS, site)
        return problems(rows)

    def _connect(self) -> tuple[TpuBackend, Any]:
        """Return the TPU service of the connection, and the connection's credentials.

        :raises ConfigError: no other try can help: there is no such connection, or what is in it
            cannot be used.
        """
        from google.auth.exceptions import DefaultCredentialsError

        from hooks.tpu import TpuHook

        name = f"Airflow connection {self.gcp_conn_id!r} (REPRETRAIN_GCP_CONN_ID)"
        unusable = (
            AirflowException,
            DefaultCredentialsError,
            FileNotFoundError,
            KeyError,
            PermissionError,
            ValueError,
        )
        try:
            hook = TpuHook(self.gcp_conn_id)
            credentials, project_id = hook.get_credentials_and_project_id()
            if project_id:
                return hook.backend(), credentials
        except unusable as error:
            why = f"{type(error).__name__}: {error}"
            line = f"{name} cannot be used ({why}). See docs/explain/tpu.md."
            raise ConfigError([line]) from error
        raise ConfigError([f"{name} names no project; add project to its extra fields."])

    def _warn_of_a_dead_reaper(self, store: StoreLayout) -> None:
        """Warn if no reaper would delete a TPU that this run's teardown failed to delete."""
        try:
            problem = reaper_problem(store, load_settings().owner, None, REAPER_MAX_AGE)
        except (OSError, FormatError) as error:
            problem = f"The reaper's last pass cannot be read: {error!r}"
        if problem:
            self.log.warning("TPU REAPER: %s", problem)

    def _record(
        self,
        run: RunLayout,
        config: PipelineConfig | FinetuningConfig,
        dag_run: Any,
        about: Mapping[str, Any],
    ) -> None:
        """Write the run's records.

        :param about: ``partition``, ``lineage_id`` and ``backfill`` of the :class:`RunRecord`.
        """
        parse = parse_finetuning_config if isinstance(config, FinetuningConfig) else parse_config
        uris.create_if_absent(run.config, config.to_bytes())
        if parse(uris.read(run.config), run.config).sha256 != config.sha256:
            line = f"{run.config}: this run was recorded with another configuration; the preset or "
            raise self._refusal([f"{line}the input has changed since. Trigger a new run."])
        RunRecord(
            run_key=identity.run_key(dag_run.dag_id, dag_run.run_id),
            dag_id=dag_run.dag_id,
            run_id=dag_run.run_id,
            config_sha256=config.sha256,
            created=datetime.now(UTC),
            **about,
        ).create(run.record)
        uris.delete(run.refusal)
        # The run starts over: its earlier outcome no longer counts.
        outcomes.reopen(run)

    def _keep_refusal(self, context: Context, run: RunLayout, problems: list[str]) -> None:
        """Store the reasons for the run's page, and leave them as its note."""
        dag_run = context["dag_run"]
        backfill = backfill_of(context)
        key = getattr(dag_run, "partition_key", None)
        conf = dag_run.conf or {}
        partition = str(key or conf.get("corpus.partition") or "")
        lineage_id = self._lineage_of(conf)
        # Reasons are sentences, and the note is one paragraph.
        reasons = short_reason(f"Refused: {'; '.join(line.rstrip('.') for line in problems)}.")
        about = f" {about_run(partition, lineage_id)}" if lineage_id else ""
        leave_note(context, f"{reasons}{about}")
        refusal = RunRefusal(
            dag_id=dag_run.dag_id,
            run_id=dag_run.run_id,
            partition=partition,
            lineage_id=lineage_id,
            backfill=backfill.name if backfill else None,
            reasons=problems,
            time=datetime.now(UTC),
        )
        try:
            refusal.write(run.refusal)
        except OSError:  # the store may be what was refused
            self.log.exception("The reasons could not be kept for the run's page")

    def _lineage_of(self, conf: Mapping[str, Any]) -> str:
        """Return the lineage that a request is about, even if it is refused; empty: none."""
        return str(conf.get("model.lineage_id") or "")

    def _skip(self, run: RunLayout, reason: str) -> AirflowSkipException:
        outcomes.record(run, OutcomeKind.SKIPPED, reason, written_by=self.task_id)
        # Airflow's log of a skipped task does not say why.
        self.log.info("%s", reason)
        return AirflowSkipException(reason)

    def _refusal(self, problems: list[str]) -> RequestRefused:
        problems = [one_line(" ".join(line.splitlines())) for line in dict.fromkeys(problems)]
        for line in problems:
            self.log.error("%s", line)
        return RequestRefused(problems)


def _culprits(
    conf: Mapping[str, Any], violations: list[str], ask: Callable[[Mapping[str, Any]], object]
) -> frozenset[str]:
    """Return settings of a request that break rules, at least one; none: the preset breaks them.

    :param violations: most begin with the name of a setting. The request may not set that one, but
        another that conflicts with it: then one setting is returned without which a violation goes.
    :param ask: raises :class:`ConfigError` when settings break a rule.
    """
    if heads := _named(conf, [line.partition(": ")[0] for line in violations]):
        return heads
    for name in sorted(conf, key=lambda name: not _named([name], violations)):
        try:
            ask({other: value for other, value in conf.items() if other != name})
        except ConfigError as error:
            if set(violations) <= set(error.violations):
                continue
        return frozenset({name})
    return frozenset()


def _named(settings: Iterable[str], lines: list[str]) -> frozenset[str]:
    """Return those settings whose name, or one of whose items, occurs in the lines."""
    text = "\n".join(lines)
    return frozenset(
        name for name in settings if re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w-])", text)
    )
