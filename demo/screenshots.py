"""Makes the pictures of Airflow's pages in docs/images, from two small runs on a stack of its own.

python -m demo.screenshots [--output docs/images]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

from PIL import Image
from playwright.sync_api import Page

from demo import browser, tiny
from local_stack.airflow_api import AirflowApi, AirflowApiError
from local_stack.errors import StackError
from local_stack.stack import Stack
from pipeline_store.layout import StoreLayout

DAG_ID, ROLLBACK_DAG = "bert_repretraining", "model_rollback"
LINEAGE = "statutes"
PARTITIONS = ("2026-01-01", "2026-01-02")
RUN_SECONDS = 900.0
APPROVE_TASK = "promotion.approve"
UPDATE = {
    "promotion.require_approval": True,
    "training.replay_fraction": 0.5,
    # So small a model forgets; the pictures are of one that is promoted.
    "promotion.max_forgetting": 10.0,
}


class ScreenshotError(Exception):
    """A picture cannot be made; the message says why."""


def main(argv: list[str] | None = None) -> int:
    """Make the pictures; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m demo.screenshots",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--state-dir",
        type=Path,
        help="new folder for the stack, which is kept (default: a temporary one)",
    )
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("docs/images"),
        help="folder of the pictures (default: %(default)s)",
    )
    options = parser.parse_args(argv)
    options.output.mkdir(parents=True, exist_ok=True)
    try:
        with (
            tempfile.TemporaryDirectory() as folder,
            Stack(options.state_dir or Path(folder) / "state") as stack,
        ):
            _Camera(stack, options.output).work()
    except (ScreenshotError, StackError, AirflowApiError) as error:
        print(f"screenshots: {error}", file=sys.stderr)
        return 1
    return 0


class _Camera:
    """Makes runs and takes a picture whenever there is something to see."""

    def __init__(self, stack: Stack, output: Path) -> None:
        self._stack = stack
        self._output = output
        self._api: AirflowApi = stack.api()
        self._url = stack.status().url

    def work(self) -> None:
        """Make two runs and all pictures."""
        store = StoreLayout(str(self._stack.paths.store))
        for number, partition in enumerate(PARTITIONS):
            # Another dialect each day: the second model has something to learn.
            tiny.write_partition(store, partition, seed=number, dialect=number)
        self._api.wait_for_dag(DAG_ID)
        self._api.unpause(DAG_ID)
        first, second = PARTITIONS
        self._finish(self._trigger(first))
        run_id = self._trigger(second, **UPDATE)
        self._wait_for_question(run_id)
        status = self._stack.status()
        with browser.logged_in(self._url, status.user, self._stack.password()) as page:
            self._forms(page)
            run = f"{self._url}/dags/{DAG_ID}/runs/{quote(run_id, safe='')}"
            browser.open_question(page, self._url, DAG_ID, run_id, APPROVE_TASK)
            self._take(page, "approval")
            browser.respond(page, "Approve")
            self._finish(run_id)
            self._results(page, run)

    def _results(self, page: Page, run: str) -> None:
        page.set_viewport_size({"width": 1400, "height": 1540})
        page.goto(f"{run}/plugin/model")
        browser.plugin_frame(page, "Model").get_by_text("Outcome: promoted").wait_for()
        self._take(page, "run-page")
        page.set_viewport_size({"width": 1400, "height": 1000})
        page.goto(f"{self._url}/plugin/models")
        browser.plugin_frame(page, "Models").get_by_text("in use", exact=True).wait_for()
        self._take(page, "models-page")
        form = browser.open_trigger_form(page, self._url, ROLLBACK_DAG)
        browser.fill_in(page, form, "lineage", LINEAGE)
        browser.fill_in(page, form, "reason", "answers on contracts got worse")
        self._take(page, "rollback")

    def _forms(self, page: Page) -> None:
        form = browser.open_trigger_form(page, self._url, DAG_ID)
        form.get_by_role("button", name="promotion", exact=True).click()
        form.locator('[name="element_promotion.min_documents"]').scroll_into_view_if_needed()
        self._take(page, "trigger-form")
        form = browser.open_trigger_form(page, self._url, DAG_ID)
        browser.choose_backfill(page, form, "2026-01-01", "2026-01-07")
        form.get_by_text("runs will be triggered", exact=False).wait_for()
        self._take(page, "backfill")

    def _take(self, page: Page, name: str) -> None:
        # Airflow draws its graphs, and fades its dialogs in, after everything has been loaded.
        page.wait_for_load_state("networkidle")
        page.wait_for_timeout(1000)
        path = self._output / f"{name}.png"
        page.screenshot(path=path)
        with Image.open(path) as picture:
            # Few colours: a third of the size, and no difference to be seen.
            picture.convert("RGB").quantize(256, dither=Image.Dither.NONE).save(path, optimize=True)
        print(path)

    def _trigger(self, partition: str, **settings: object) -> str:
        chosen = {"corpus.partition": partition, "model.lineage_id": LINEAGE}
        return self._api.trigger(DAG_ID, tiny.SETTINGS | chosen | settings)

    def _finish(self, run_id: str) -> None:
        ended = self._api.wait_for_run(DAG_ID, run_id, seconds=RUN_SECONDS)
        if ended.state != "success":
            raise ScreenshotError(f"Run {run_id} ended {ended.state}; its log is in Airflow.")

    def _wait_for_question(self, run_id: str) -> None:
        def states() -> dict[str, str | None]:
            return {t.task_id: t.state for t in self._api.task_instances(DAG_ID, run_id)}

        _until(lambda: states().get(APPROVE_TASK) == "awaiting_input", f"the question of {run_id}")


def _until(is_so: Callable[[], bool], name: str) -> None:
    deadline = time.monotonic() + RUN_SECONDS
    while not is_so():
        if time.monotonic() > deadline:
            raise ScreenshotError(f"Waited {RUN_SECONDS:.0f} s in vain for {name}.")
        time.sleep(1)


if __name__ == "__main__":
    sys.exit(main())
