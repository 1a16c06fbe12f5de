"""The tables of the emulator's database, and the check that a file has exactly these."""

from __future__ import annotations

import sqlite3
from pathlib import Path

VERSION = 2
"""Incremented with every change of the tables; there is no conversion."""

_TABLES = """
CREATE TABLE IF NOT EXISTS resources (
    name TEXT PRIMARY KEY, collection TEXT, parent TEXT, body BLOB);
CREATE INDEX IF NOT EXISTS resources_by_parent ON resources (collection, parent, name);
CREATE TABLE IF NOT EXISTS changes (
    id INTEGER PRIMARY KEY AUTOINCREMENT, at REAL, name TEXT, collection TEXT, parent TEXT,
    before BLOB);
CREATE INDEX IF NOT EXISTS changes_by_time ON changes (at);
CREATE TABLE IF NOT EXISTS history (
    id INTEGER PRIMARY KEY AUTOINCREMENT, at REAL, name TEXT, life INTEGER, state TEXT);
CREATE INDEX IF NOT EXISTS history_by_name ON history (name);
CREATE TABLE IF NOT EXISTS lives (life INTEGER PRIMARY KEY, name TEXT, description TEXT);
CREATE TABLE IF NOT EXISTS requests (
    request_id TEXT, method TEXT, target TEXT, operation TEXT, PRIMARY KEY (request_id, method));
CREATE TABLE IF NOT EXISTS transitions (
    id INTEGER PRIMARY KEY AUTOINCREMENT, due REAL, serial TEXT, action TEXT, target TEXT,
    arguments TEXT);
CREATE TABLE IF NOT EXISTS workers (
    marker TEXT PRIMARY KEY, node TEXT, number INTEGER, port INTEGER, pid INTEGER,
    started REAL, exit_code INTEGER, boots INTEGER, preempted INTEGER, maintenance INTEGER,
    dead INTEGER);
CREATE TABLE IF NOT EXISTS faults (
    id INTEGER PRIMARY KEY AUTOINCREMENT, kind TEXT, method TEXT, zone TEXT, caller TEXT,
    remaining INTEGER, until REAL, share REAL, tries INTEGER, armed REAL, details TEXT);
CREATE TABLE IF NOT EXISTS operation_errors (
    operation TEXT PRIMARY KEY, code TEXT, message TEXT);
CREATE TABLE IF NOT EXISTS calls (
    id INTEGER PRIMARY KEY AUTOINCREMENT, received REAL, finished REAL, method TEXT, name TEXT,
    zone TEXT, caller TEXT, code TEXT, message TEXT, request TEXT);
CREATE TABLE IF NOT EXISTS counters (name TEXT PRIMARY KEY, value INTEGER);
"""


class StateError(RuntimeError):
    """The state folder cannot be used; the message says why and what to do."""


def prepare(database: sqlite3.Connection, path: Path) -> None:
    """Creates the tables in a new file.

    Raises:
        StateError: the file was written by another version of the emulator.
    """
    [(found,)] = database.execute("PRAGMA user_version")
    [(tables,)] = database.execute("SELECT count(*) FROM sqlite_master")
    if tables and found != VERSION:
        raise StateError(
            f"{path} has schema version {found}, this emulator needs {VERSION}: nothing converts "
            f"it; end its VMs and delete the folder {path.parent}, or choose another --state-dir"
        )
    database.executescript(_TABLES)
    database.execute(f"PRAGMA user_version = {VERSION}")
