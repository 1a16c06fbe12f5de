"""The list of doors that a data job may try, and the expected state of each.

The table in ``docs/reference/requests.md`` is made from it, and the tests compare it with the
findings of a real job on a laptop's stack and on a team server.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from verification.reach import attempts
from verification.reach.attempts import Found
from verification.reach.site import Site


@dataclass(frozen=True)
class Door:
    """Something that a job may try to reach.

    :ivar leads_to: what is behind it.
    :ivar attempt: tries it.
    :ivar laptop: expected state on the local stack.
    :ivar server: expected state on a team server; None: not tried there.
    :ivar why: the reason, in half a sentence.
    :ivar by_landlock: whether it is open where the kernel has no Landlock.
    """

    name: str
    leads_to: str
    attempt: Callable[[Site], Found]
    laptop: Found
    server: Found | None
    why: str
    by_landlock: bool = False


OPEN, CLOSED, ABSENT = Found.OPEN, Found.CLOSED, Found.ABSENT
_HIDDEN = "hidden"
DOORS = (
    Door(
        "keys",
        "Airflow's keys in `airflow.cfg`",
        attempts.keys,
        CLOSED,
        CLOSED,
        _HIDDEN,
        by_landlock=True,
    ),
    Door(
        "secrets",
        "`/run/secrets`: keys, and the address of the database with its password",
        attempts.secrets,
        ABSENT,
        CLOSED,
        _HIDDEN,
        by_landlock=True,
    ),
    Door(
        "logins",
        "everybody's password",
        attempts.logins,
        CLOSED,
        ABSENT,
        "hidden; on a server in another container",
        by_landlock=True,
    ),
    Door("logs", "the logs of all tasks", attempts.logs, CLOSED, CLOSED, _HIDDEN, by_landlock=True),
    Door(
        "processes",
        "environment of Airflow's processes: connections, alerts' webhooks",
        attempts.environments,
        CLOSED,
        CLOSED,
        "no process outside of the job can be looked into",
        by_landlock=True,
    ),
    Door(
        "memory",
        "memory of Airflow's processes: keys, tokens of tasks",
        attempts.memories,
        CLOSED,
        CLOSED,
        "the same",
        by_landlock=True,
    ),
    Door(
        "signals",
        "signals to Airflow's processes: stopping a task, or the scheduler",
        attempts.signals,
        CLOSED,
        CLOSED,
        "no process outside of the job gets one; **open** where the kernel is older than 6.12",
        by_landlock=True,
    ),
    Door(
        "own-variables",
        "Airflow's variables, and any that is called a key, secret, token or password",
        attempts.own_variables,
        CLOSED,
        CLOSED,
        "not passed on; all other variables of the worker are",
    ),
    Door(
        "code",
        "DAGs and plugins: code that Airflow runs",
        attempts.code,
        CLOSED,
        CLOSED,
        "can be read only",
        by_landlock=True,
    ),
    Door(
        "attributes",
        "rights, owner and times of what is hidden: closing it to Airflow, or opening it to other "
        "users",
        attempts.attributes,
        OPEN,
        OPEN,
        "Landlock refuses reading, writing and renaming, but neither chmod, chown nor utime",
    ),
    Door(
        "names",
        "names of all files and folders, hidden ones too",
        attempts.names,
        OPEN,
        OPEN,
        "the job does not give that up; no secret is in one",
    ),
    Door(
        "database-files",
        "files of the database",
        attempts.database_files,
        CLOSED,
        ABSENT,
        "hidden; on a server in another container",
        by_landlock=True,
    ),
    Door(
        "database",
        "a session with the database, and so all of Airflow",
        attempts.database,
        OPEN,
        CLOSED,
        "on a laptop the database asks the kernel which user it is, and Landlock knows no sockets; "
        "on a server it asks for the hidden password",
    ),
    Door(
        "rest",
        "REST and the tasks' own interface",
        attempts.rest,
        CLOSED,
        CLOSED,
        "they ask for a login, and for a task's token",
    ),
    Door(
        "sockets",
        "TPU emulator and supervisor of the local stack: TPUs, starting and stopping",
        attempts.sockets,
        OPEN,
        None,
        "their sockets are for whoever is the same user",
    ),
    Door(
        "account",
        "variables that lead to a login to the cloud",
        attempts.account,
        ABSENT,
        ABSENT,
        "in Google Cloud the machine's account is **open** without any: the job needs the bucket",
    ),
    Door(
        "store",
        "the whole store: all runs, versions, lineages",
        attempts.store,
        OPEN,
        OPEN,
        "it is one folder or bucket, with one account; the job reads and writes there",
    ),
    Door(
        "commands",
        "command lines of all processes",
        attempts.command_lines,
        OPEN,
        OPEN,
        "the kernel shows them to everybody; no secret is in one",
    ),
)


VALIDATE = "all of this, by a file that `validate` tries"
WHY_VALIDATE = (
    "it opens the text, the vocabulary, models' descriptions and tasks that a request names in the "
    "task's own process, which gives up nothing"
)
"""A row of the table that no job can try, because it is about a task and not a job."""


def table() -> Iterator[str]:
    """Yield the lines of the table in the docs."""
    yield "| behind the door | the local stack | a team server | why |"
    yield "|---|---|---|---|"
    for door in DOORS:
        mark = " †" if door.by_landlock else ""
        cells = (
            f"**{cell}**" if cell is OPEN else cell or "" for cell in (door.laptop, door.server)
        )
        yield f"| {door.leads_to} | {' | '.join(cells)} | {door.why}{mark} |"
    yield f"| {VALIDATE} | **{OPEN}** | **{OPEN}** | {WHY_VALIDATE} |"
