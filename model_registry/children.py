"""Lists the smaller models of a lineage's classifiers (children), and which are current.

A child belongs to one classifier, and that to one version. It is current while that version is in
production, so a rollback changes which children are current without touching any.
"""

from __future__ import annotations

from typing import NamedTuple

from pipeline_store import uris
from pipeline_store.formats import CompressedModel, ProductionPointer
from pipeline_store.layout import StoreLayout


class Child(NamedTuple):
    """An accepted child, and where it is.

    :param folder: folder of the exported model.
    """

    uri: str
    folder: str
    model: CompressedModel
    is_current: bool


def children_of(store: StoreLayout, lineage_id: str) -> list[Child]:
    """Return the accepted children of a lineage, oldest first.

    Among children of the same name, task and version, only the newest is current.

    :raises FormatError: a record is damaged.
    """
    pointer = ProductionPointer.load_or_none(store.lineage(lineage_id).production)
    in_use = None if pointer is None else pointer.version_id
    pattern = uris.join(store.run("*").children("*").root, "*", "child.json")
    models = [(uri, CompressedModel.load(uri)) for uri in uris.glob(pattern)]
    own = [
        (uri, one) for uri, one in models if one.parent.lineage_id == lineage_id and one.accepted
    ]
    own.sort(key=lambda found: (found[1].created, found[0]))
    newest = {(one.task, one.name): uri for uri, one in own if one.parent.version_id == in_use}
    return [
        Child(
            uri=uri,
            folder=uris.join(uri.rpartition("/")[0], one.folder, one.served_as),
            model=one,
            is_current=in_use is not None and newest.get((one.task, one.name)) == uri,
        )
        for uri, one in own
    ]


def summary(child: Child) -> dict[str, object]:
    """Return the facts about a child that a person or a server needs, as JSON values."""
    model = child.model
    return {
        "child": model.name,
        "current": child.is_current,
        "task": model.task,
        "version": model.parent.version_id,
        "run": model.parent.run_key,
        "trial": model.parent.trial_id,
        "folder": child.folder,
        "megabytes": round(model.figures.megabytes, 3),
        "p50_ms": round(model.figures.p50_ms, 3),
        "metric": model.figures.metric,
        "value": round(model.figures.value, 6),
        "created": model.created.isoformat(),
    }
