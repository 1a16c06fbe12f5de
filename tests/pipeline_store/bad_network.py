"""A network between this process and Cloud Storage that loses requests and replies of uploads."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any

import pytest
import requests


@dataclass
class BadNetwork:
    """Loses as many as asked for, after some that arrive, then works again.

    It works upon the client's own connections, so that it can also lie before the real service.
    """

    arriving: int = 0
    requests_to_lose: int = 0
    replies_to_lose: int = 0
    lost: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def lose(self, what: str) -> None:
        """Raise what a client sees of a lost request or reply, if one is to be lost."""
        with self.lock:
            left = 0 if self.arriving else getattr(self, what)
            if not left:
                return
            setattr(self, what, left - 1)
            self.lost += 1
        raise requests.exceptions.ConnectionError(f"one of {what}")


@pytest.fixture
def bad_network(monkeypatch: pytest.MonkeyPatch) -> BadNetwork:
    """Return a network that works until it is told not to."""
    network, send = BadNetwork(), requests.adapters.HTTPAdapter.send

    def unreliable(
        adapter: requests.adapters.HTTPAdapter, request: requests.PreparedRequest, **options: Any
    ) -> requests.Response:
        is_upload = request.method in ("POST", "PUT") and "/upload/" in (request.url or "")
        if is_upload:
            network.lose("requests_to_lose")
        response = send(adapter, request, **options)
        if is_upload:
            network.lose("replies_to_lose")
            network.arriving = max(0, network.arriving - 1)
        return response

    monkeypatch.setattr(requests.adapters.HTTPAdapter, "send", unreliable)
    return network
