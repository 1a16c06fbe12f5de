"""Makes the pictures of Airflow's pages in docs/images, from small runs on a stack of its own.

python -m local.demo.screenshots [--output docs/images]
python -m local.demo.screenshots --check    # without a browser: do they show what is drawn today?
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from local.demo import browser
from local.demo.screenshots import finetuning, manifest, repretraining
from local.demo.screenshots.studio import ScreenshotError, Studio
from local.stack.airflow_api import AirflowApiError
from local.stack.paths import StackError
from local.stack.stack import Stack
from pipeline_config.command_line import command_parser


def main(argv: list[str] | None = None) -> int:
    """Make the pictures; return the exit status."""
    parser = command_parser("local.demo.screenshots", __doc__)
    parser.add_argument(
        "--state-dir",
        type=Path,
        help="new folder for the stack, which is kept (default: a temporary one)",
    )
    parser.add_argument(
        "--output",
        type=Path,
        default=manifest.FOLDER,
        help="folder of the pictures (default: %(default)s)",
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="make nothing; exit with 1 and name the pictures that are out of date",
    )
    options = parser.parse_args(argv)
    if options.check:
        return _check(options.output)
    options.output.mkdir(parents=True, exist_ok=True)
    try:
        with (
            tempfile.TemporaryDirectory() as folder,
            Stack(options.state_dir or Path(folder) / "state") as stack,
        ):
            status = stack.status()
            with browser.logged_in(status.url, status.user, stack.password()) as page:
                studio = Studio(stack, page, options.output)
                repretraining.make(studio)
                finetuning.make(studio)
            manifest.write(options.output)
    except (ScreenshotError, StackError, AirflowApiError) as error:
        print(f"screenshots: {error}", file=sys.stderr)
        return 1
    return 0


def _check(folder: Path) -> int:
    if stale := manifest.stale(folder):
        print(
            f"screenshots: {', '.join(stale)}: what {'it is' if len(stale) == 1 else 'they are'} "
            "drawn from has changed, or a file is missing; run make screenshots, look at them, "
            "and commit them.",
            file=sys.stderr,
        )
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
