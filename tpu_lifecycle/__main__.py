"""Lists and reaps the TPUs of one owner, with or without Airflow, such as from cron.

python -m tpu_lifecycle list --store gs://my-bucket/store --project my-project
python -m tpu_lifecycle reap --once --dry-run --store gs://my-bucket/store --project my-project
"""

from __future__ import annotations

import argparse
import logging
import sys

from pipeline_config.settings import load_settings
from pipeline_store.layout import StoreLayout
from tpu_lifecycle.backend import TpuError
from tpu_lifecycle.cloud_tpu import connect
from tpu_lifecycle.labels import TpuLabels
from tpu_lifecycle.reaper import Reaper, ReaperReport, describe


def main(argv: list[str] | None = None) -> int:
    """Run a command; 0 when all went well, 1 when something could not be looked at or deleted."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    arguments = _parser().parse_args(argv)
    backend = connect(
        project_id=arguments.project, endpoint=arguments.endpoint, insecure=arguments.insecure
    )
    reaper = Reaper(
        backend,
        StoreLayout(arguments.store),
        arguments.project,
        arguments.owner,
        arguments.zone,
        dry_run=getattr(arguments, "dry_run", False),
    )
    try:
        report = _reap(reaper) if arguments.command == "reap" else _list(reaper)
    except TpuError as error:
        print(error, file=sys.stderr)
        return 1
    finally:
        backend.close()
    for problem in report.problems:
        print(f"PROBLEM: {problem}", file=sys.stderr)
    return 1 if report.problems else 0


def _reap(reaper: Reaper) -> ReaperReport:
    report = reaper.reap()
    print(report.to_json())
    return report


def _list(reaper: Reaper) -> ReaperReport:
    report = ReaperReport()
    for state in reaper.find(report):
        try:
            until = f"until {TpuLabels.parse(state.labels).expires_at:%F %T} UTC"
        except ValueError as error:
            until = str(error)
        item = describe(state, until, "kept")
        print(f"{item.name}  {item.zone}  {item.state}  run {item.run_key or '?'}  {until}")
    print(f"{report.seen} TPU(s) of {reaper.owner}.")
    return report


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tpu_lifecycle",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True)
    show = commands.add_parser("list", help="show the owner's TPUs")
    reap = commands.add_parser("reap", help="delete the owner's TPUs that nobody gives back")
    reap.add_argument("--once", action="store_true", required=True, help="one pass, then exit")
    reap.add_argument("--dry-run", action="store_true", help="only say what would be deleted")
    settings = load_settings()
    for command in (show, reap):
        command.add_argument("--store", default=settings.store_uri, help="default: %(default)s")
        command.add_argument("--project", required=True, help="Google Cloud project")
        command.add_argument(
            "--zone",
            action="append",
            default=[],
            help="look here too, repeatable; zones in which a TPU was ever asked for are known",
        )
        command.add_argument("--owner", default=settings.owner, help="default: %(default)s")
        command.add_argument("--endpoint", help="of the API, such as unix:/path/of/emulator.sock")
        command.add_argument("--insecure", action="store_true", help="no TLS: an emulator")
    return parser


if __name__ == "__main__":
    sys.exit(main())
