"""Pictures of dashboards: every query is asked, and what is drawn is what was answered."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from PIL import Image

from local.demo import dashboards
from pipeline_metrics.dashboards import DASHBOARDS
from tests.serving import serving


class Prometheus(ThreadingHTTPServer):
    """Answers each query with two rows, or as it is told.

    :ivar rows: how many there are.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.asked: set[str] = set()
        self.rows = 2


class _Handler(BaseHTTPRequestHandler):
    server: Prometheus

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        query = parse_qs(urlsplit(self.path).query)
        self.server.asked.add(query["query"][0])
        start, end = float(query["start"][0]), float(query["end"][0])
        rows = [
            {"metric": {"lineage": f"line-{n}"}, "values": [[start, "1"], [end, str(n)]]}
            for n in range(self.server.rows)
        ]
        data = json.dumps({"status": "success", "data": {"result": rows}}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


@pytest.fixture
def prometheus() -> Iterator[Prometheus]:
    with serving(Prometheus()) as running:
        yield running


def draw(prometheus: Prometheus, folder: Path) -> int:
    address = f"http://127.0.0.1:{prometheus.server_port}"
    return dashboards.main(["--prometheus", address, "--output", str(folder)])


def test_each_query_of_each_panel_is_drawn(prometheus: Prometheus, tmp_path: Path) -> None:
    assert draw(prometheus, tmp_path) == 0
    wanted = {
        expression.replace("$lineage", ".*")
        for dashboard in DASHBOARDS
        for panel in dashboard.panels
        for expression in panel.expressions
    }
    assert prometheus.asked == wanted
    pictures = sorted(path.name for path in tmp_path.iterdir())
    assert pictures == ["dashboard-models.png", "dashboard-operation.png", "dashboard-tpus.png"]
    for name in pictures:
        with Image.open(tmp_path / name) as picture:
            assert picture.width > 1000


def test_without_a_value_there_is_no_picture(
    prometheus: Prometheus, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prometheus.rows = 0
    assert draw(prometheus, tmp_path) == 1
    assert "does it scrape the exporter" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_legend_is_made_of_labels() -> None:
    labels = {"lineage": "news", "dag": "bert_repretraining"}
    assert dashboards.legend("{{rows}}: {{lineage}}, {{dag}}", labels) == (
        ": news, bert_repretraining"
    )
