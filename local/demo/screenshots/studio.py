"""Controls a stack and a browser, to make runs and take pictures."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal
from urllib.parse import quote

from PIL import Image
from playwright.sync_api import Page

from local.demo.screenshots.manifest import files_of
from local.stack.airflow_api import AirflowApi
from local.stack.stack import Stack
from pipeline_store.layout import StoreLayout

RUN_SECONDS = 900.0
WIDTH = 1400


class ScreenshotError(Exception):
    """A picture cannot be made; the message says why."""


class Studio:
    """Starts runs, waits for them and takes pictures of pages.

    :param page: logged in to the stack's Airflow.
    :param output: folder of the pictures.
    """

    def __init__(self, stack: Stack, page: Page, output: Path) -> None:
        self.page = page
        self.api: AirflowApi = stack.api()
        self.url = self.api.base_url
        self.store = StoreLayout(str(stack.paths.store))
        self._output = output

    def switch_on(self, dag_id: str) -> None:
        """Unpause a DAG once Airflow has read it."""
        self.api.wait_for_dag(dag_id)
        self.api.unpause(dag_id)

    def finish(self, dag_id: str, run_id: str) -> None:
        """Wait for the end of a run.

        :raises ScreenshotError: the run did not succeed.
        """
        ended = self.api.wait_for_run(dag_id, run_id, seconds=RUN_SECONDS)
        if ended.state != "success":
            raise ScreenshotError(f"Run {run_id} ended {ended.state}; its log is in Airflow.")

    def open(self, place: str, *, height: int, width: int = WIDTH) -> None:
        """Go to a page of Airflow in a window of the given size in pixels.

        :param place: path and query.
        """
        self.page.set_viewport_size({"width": width, "height": height})
        self.page.goto(f"{self.url}{place}")

    def open_run(self, dag_id: str, run_id: str, place: str, *, height: int) -> None:
        """Go to a page below a run's page."""
        self.open(f"/dags/{dag_id}/runs/{quote(run_id, safe='')}{place}", height=height)

    def take(self, name: str) -> None:
        """Take pictures of the visible page in light and in dark mode."""
        light, dark = files_of(self._output, name)
        self._take(dark, "dark")
        self._take(light, "light")

    def _take(self, path: Path, scheme: Literal["light", "dark"]) -> None:
        self.page.emulate_media(color_scheme=scheme)
        # Airflow draws its graphs, and fades its dialogs in, after everything has been loaded.
        self.page.wait_for_load_state("networkidle")
        self.page.wait_for_timeout(1000)
        self.page.screenshot(path=path)
        with Image.open(path) as picture:
            # A palette of 256 colors: a third of the size, and no visible difference.
            picture.convert("RGB").quantize(256, dither=Image.Dither.NONE).save(path, optimize=True)
        print(path)


def until(is_so: Callable[[], bool], name: str) -> None:
    """Poll until a condition holds.

    :param name: name of the condition, for the error.
    :raises ScreenshotError: it does not hold in time.
    """
    deadline = time.monotonic() + RUN_SECONDS
    while not is_so():
        if time.monotonic() > deadline:
            raise ScreenshotError(f"Waited {RUN_SECONDS:.0f} s in vain for {name}.")
        time.sleep(1)
