"""Lists and reaps TPUs of one owner without Airflow, such as from cron, and reports their cost.

python -m tpu_lifecycle list
python -m tpu_lifecycle reap --once --dry-run --store gs://my-bucket/store --project my-project
python -m tpu_lifecycle reap-foreign NAME --zone ZONE
python -m tpu_lifecycle reaper-status --max-age-minutes 30
python -m tpu_lifecycle spending --since 2026-01-01

Airflow's settings, if present, give the defaults of store, owner, project and service address.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

from google.api_core.exceptions import GoogleAPIError
from google.auth.exceptions import GoogleAuthError

from pipeline_config.command_line import Run, SubCommands
from pipeline_config.settings import add_store_argument, load_settings, tpu_service
from pipeline_store.formats import FormatError
from pipeline_store.layout import StoreLayout
from tpu_lifecycle.control.reaper import (
    NotReapedError,
    Reaper,
    ReaperReport,
    describe,
    stored_places,
)
from tpu_lifecycle.control.reaper_status import newest_pass, reaper_problem
from tpu_lifecycle.records.billed import WEEKS, default_since, spent_since
from tpu_lifecycle.records.spending import by_lineage, lines
from tpu_lifecycle.service import connecting
from tpu_lifecycle.service.backend import TpuError
from tpu_lifecycle.service.labels import TpuLabels

_REFUSALS = (TpuError, NotReapedError, OSError, FormatError, GoogleAuthError, GoogleAPIError)


def main(argv: list[str] | None = None) -> int:
    """Run a command; return 0 on success, 1 when something could not be read or deleted."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    return _commands().run(argv, *_REFUSALS)


def _reap(arguments: argparse.Namespace) -> int:
    with _reaper(arguments, dry_run=arguments.dry_run) as reaper:
        report = reaper.reap()
    print(report.to_json())
    return _exit_code(report)


def _reap_foreign(arguments: argparse.Namespace) -> int:
    with _reaper(arguments) as reaper:
        print(reaper.reap_foreign(arguments.name, arguments.zone[0]))
    return 0


def _list(arguments: argparse.Namespace) -> int:
    report = ReaperReport()
    with _reaper(arguments) as reaper:
        for state in reaper.find(report):
            try:
                until = f"until {TpuLabels.parse(state.labels).expires_at:%F %T} UTC"
            except ValueError as error:
                until = str(error)
            item = describe(state, until, "kept")
            print(f"{item.name}  {item.zone}  {item.state}  run {item.run_key or '?'}  {until}")
    print(f"{report.seen} TPU(s) of {arguments.owner}.")
    return _exit_code(report)


def _status(arguments: argparse.Namespace) -> int:
    store, owner = StoreLayout(arguments.store), arguments.owner
    max_age = timedelta(minutes=arguments.max_age_minutes)
    if problem := reaper_problem(store, owner, arguments.project, max_age):
        print(problem, file=sys.stderr)
        return 1
    newest = newest_pass(store, owner, arguments.project)
    print(newest.to_bytes().decode() if newest else "")
    return 0


def _spending(arguments: argparse.Namespace) -> int:
    problems: list[str] = []
    store, lineage_id = StoreLayout(arguments.store), arguments.lineage
    found = spent_since(store, arguments.since, lineage_id=lineage_id, problems=problems)
    lineages = by_lineage(found)
    if arguments.json:
        parts = [
            {"lineage": one.lineage_id, "total": one.total.to_json()}
            | {"weeks": {week: total.to_json() for week, total in one.weeks.items()}}
            for one in lineages
        ]
        print(json.dumps({"since": f"{arguments.since:%F}", "lineages": parts}))
    else:
        print("\n".join(line for one in lineages for line in lines(one)) or "No TPU was billed.")
    for problem in problems:
        print(f"PROBLEM: {problem}", file=sys.stderr)
    return 1 if problems else 0


def _day(text: str) -> datetime:
    return datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC)


def _project(arguments: argparse.Namespace) -> str:
    """Return the given project, or else the only one that the store knows of.

    :raises NotReapedError: there is none, or there are several.
    """
    if arguments.project:
        return str(arguments.project)
    problems: list[str] = []
    places = stored_places(StoreLayout(arguments.store), problems)
    found = sorted({place.project_id for place in places})
    if len(found) == 1:
        return found[0]
    where = f"{arguments.store} has reservations of {' and '.join(found) or 'no project'}"
    raise NotReapedError(
        f"In which project? {'; '.join([where, *problems])}. Set GOOGLE_CLOUD_PROJECT or give "
        "--project."
    )


@contextmanager
def _reaper(arguments: argparse.Namespace, *, dry_run: bool = False) -> Iterator[Reaper]:
    project_id = _project(arguments)
    backend = connecting.connect(
        project_id=project_id,
        endpoint=arguments.endpoint,
        insecure=arguments.insecure,
        role="cron",
    )
    try:
        yield Reaper(
            backend,
            StoreLayout(arguments.store),
            project_id,
            arguments.owner,
            arguments.zone,
            dry_run=dry_run,
        )
    finally:
        backend.close()


def _exit_code(report: ReaperReport) -> int:
    for problem in report.problems:
        print(f"PROBLEM: {problem}", file=sys.stderr)
    return 1 if report.problems else 0


def _commands() -> SubCommands:
    commands = SubCommands("tpu_lifecycle", __doc__)
    show = _command(commands, "list", _list, "show the owner's TPUs")
    reap = _command(commands, "reap", _reap, "delete the owner's TPUs that nobody releases")
    reap.add_argument("--once", action="store_true", required=True, help="one pass, then exit")
    reap.add_argument("--dry-run", action="store_true", help="only say what would be deleted")
    text = "delete by its name what is long expired and another installation of the owner left"
    foreign = _command(commands, "reap-foreign", _reap_foreign, text)
    foreign.add_argument("name", help="of the TPU, as list and the reaper's problems say it")
    foreign.add_argument("--zone", nargs=1, required=True, help="where it is")
    for command in (show, reap):
        command.add_argument(
            "--zone",
            action="append",
            default=[],
            help="look here too, repeatable; zones in which a TPU was ever asked for are known",
        )
    service = tpu_service()
    for command in (show, reap, foreign):
        command.add_argument(
            "--project",
            default=service.project_id,
            help="Google Cloud project; default: GOOGLE_CLOUD_PROJECT, else that of Airflow's "
            "connection, if a variable has it, else the one in which the store's TPUs were rented",
        )
        command.add_argument(
            "--endpoint",
            default=service.endpoint,
            help="of the API, such as unix:/path/of/emulator.sock; default: that of Airflow's "
            "connection, if a variable has it, else Google's",
        )
        command.add_argument(
            "--insecure", action="store_true", default=service.insecure, help="no TLS: an emulator"
        )
    text = "exit with 1 when the reaper, DAG or cron, made no pass lately or had problems"
    status = _command(commands, "reaper-status", _status, text)
    status.add_argument("--project", help="Google Cloud project; default: whichever")
    status.add_argument("--max-age-minutes", type=float, default=30.0, help="default: %(default)s")
    text = "show what the TPUs of all runs cost, and what the time was spent on"
    spending = _command(commands, "spending", _spending, text)
    spending.add_argument(
        "--since",
        type=_day,
        default=default_since(),
        metavar="DATE",
        help=f"first day, UTC: 2026-01-31; default: the last {WEEKS} weeks, as on the page",
    )
    spending.add_argument("--lineage", help="default: all of them")
    spending.add_argument("--json", action="store_true", help="print one JSON object")
    return commands


def _command(commands: SubCommands, name: str, run: Run, text: str) -> argparse.ArgumentParser:
    command = commands.add(name, run, text)
    add_store_argument(command)
    command.add_argument("--owner", default=load_settings().owner, help="default: %(default)s")
    return command


if __name__ == "__main__":
    sys.exit(main())
