"""Records the reaper's passes, so that a stopped reaper is noticed before it is needed."""

from __future__ import annotations

import socket
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from pipeline_store import uris
from pipeline_store.formats import FormatError, ReaperPass, StandingTpu
from pipeline_store.layout import StoreLayout


def write_pass(
    store: StoreLayout,
    owner: str,
    project_id: str,
    *,
    seen: int,
    acted_on: int,
    problems: list[str],
    answered: Iterable[str] = (),
    standing: Iterable[StandingTpu] = (),
) -> None:
    """Record that a pass was made, whatever its result.

    :param answered: zones that could be listed; those of the previous pass are kept.
    :param standing: TPUs whose lease has lapsed.
    """
    uri = store.reaper_pass(owner, project_id)
    try:
        earlier = ReaperPass.load_or_none(uri)
    except FormatError:
        earlier = None  # replaced
    ReaperPass(
        owner=owner,
        project_id=project_id,
        finished=datetime.now(UTC),
        host=socket.gethostname(),
        seen=seen,
        acted_on=acted_on,
        problems=problems,
        answered=sorted({*answered, *(earlier.answered if earlier else ())}),
        standing=list(standing),
    ).write(uri)


def newest_pass(store: StoreLayout, owner: str, project_id: str | None = None) -> ReaperPass | None:
    """Return the owner's newest pass, or None when there never was one.

    :param project_id: None: any project.
    """
    if project_id is not None:
        return ReaperPass.load_or_none(store.reaper_pass(owner, project_id))
    passes = [ReaperPass.load(uri) for uri in uris.list_files(store.reaper_passes(owner))]
    return max(passes, key=lambda one: one.finished, default=None)


def reaper_problem(
    store: StoreLayout, owner: str, project_id: str | None, max_age: timedelta
) -> str | None:
    """Return a description of what is wrong with the owner's reaper, or None.

    :param max_age: of the newest pass; a few times the interval at which the reaper is started.
    """
    newest = newest_pass(store, owner, project_id)
    where = f"owner {owner}" + (f", project {project_id}" if project_id else "")
    advice = "unpause the tpu_reaper DAG, or run python -m tpu_lifecycle reap --once from cron"
    if newest is None:
        return f"The reaper ({where}) never made a pass: {advice}."
    age = datetime.now(UTC) - newest.finished
    if age > max_age:
        return (
            f"The reaper ({where}) made its last pass at {newest.finished:%F %T} UTC on "
            f"{newest.host}, {age.total_seconds() / 60:.0f} minutes ago: {advice}."
        )
    if newest.problems:
        return f"The reaper's last pass ({where}) had problems: {'; '.join(newest.problems)}"
    return None
