"""Choosing ports."""

from __future__ import annotations

import socket

from local.stack import ports

NAMES = ("one", "two", "three")


def test_every_name_gets_a_free_port_of_its_own() -> None:
    chosen = ports.choose(NAMES, {})
    assert len(set(chosen.values())) == len(NAMES)
    assert all(ports.is_free(port) for port in chosen.values())


def test_previous_ports_are_kept() -> None:
    first = ports.choose(NAMES, {})
    assert ports.choose(NAMES, first) == first


def test_a_previous_port_in_use_is_replaced_and_the_others_are_kept() -> None:
    first = ports.choose(NAMES, {})
    with socket.socket() as server:
        server.bind((ports.HOST, first["two"]))
        server.listen()
        assert not ports.is_free(first["two"])
        second = ports.choose(NAMES, first)
    assert second["two"] != first["two"]
    assert (second["one"], second["three"]) == (first["one"], first["three"])


def test_a_server_on_all_interfaces_counts_as_in_use() -> None:
    with socket.socket() as server:
        server.bind(("0.0.0.0", 0))  # noqa: S104
        server.listen()
        assert not ports.is_free(server.getsockname()[1])
