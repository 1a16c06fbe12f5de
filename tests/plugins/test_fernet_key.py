"""What Airflow keeps encrypted is encrypted anew, also while tasks are deferred."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from airflow.models.connection import Connection
from airflow.models.crypto import get_fernet
from airflow.models.trigger import Trigger
from airflow.models.variable import Variable
from airflow.utils.db import initdb
from airflow.utils.session import create_session
from cryptography.fernet import Fernet, InvalidToken
from sqlalchemy import delete, select

from hooks import fernet_key

OLD, NEW, LOST = (Fernet.generate_key().decode() for _ in range(3))
WORD = "of-the-webhook"
TABLES = (Connection, Variable, Trigger)
SetKeys = Callable[..., None]


@pytest.fixture(scope="module", autouse=True)
def database() -> Iterator[None]:
    initdb()
    yield
    with create_session() as session:
        for table in TABLES:
            session.execute(delete(table))


@pytest.fixture
def set_keys(monkeypatch: pytest.MonkeyPatch) -> Iterator[SetKeys]:
    def use(*keys: str) -> None:
        monkeypatch.setenv("AIRFLOW__CORE__FERNET_KEY", ",".join(keys))
        get_fernet.cache_clear()

    yield use
    get_fernet.cache_clear()


@pytest.fixture
def stored(set_keys: SetKeys) -> None:
    """Store one of each kind under the old key, and a deferred task's trigger as Airflow does."""
    set_keys(OLD)
    deferred = Trigger("a.Trigger", {})
    deferred.encrypted_kwargs = '{"of": "a task"}'
    with create_session() as session:
        for table in TABLES:
            session.execute(delete(table))
        session.add_all(
            [
                Connection("stored", conn_type="http", password=WORD, extra='{"a": 1}'),
                Variable("stored", "value"),
                Trigger("a.Trigger", {"of": "an asset"}),
                deferred,
            ]
        )


def read() -> list[object]:
    """Return all that is stored, as Airflow decrypts it."""
    with create_session() as session:
        [connection] = session.scalars(select(Connection))
        [variable] = session.scalars(select(Variable))
        triggers = session.scalars(select(Trigger).order_by(Trigger.id))
        arguments = [trigger.kwargs for trigger in triggers]
        return [connection.password, connection.extra, variable.get_val(), *arguments]


def test_the_new_key_alone_opens_all_of_it(stored: None, set_keys: SetKeys) -> None:
    before = read()
    assert before == [WORD, '{"a": 1}', "value", {"of": "an asset"}, {"of": "a task"}]
    set_keys(NEW, OLD)
    assert fernet_key.main() == 0
    set_keys(NEW)
    assert read() == before


def test_with_a_key_missing_nothing_is_changed(
    stored: None, set_keys: SetKeys, capsys: pytest.CaptureFixture[str]
) -> None:
    before = read()
    set_keys(LOST)
    with create_session() as session:
        session.add(Trigger("a.Trigger", {"of": "a lost key"}))
    set_keys(NEW, OLD)
    assert fernet_key.main() == 1
    assert "a key that fernet_key does not name" in capsys.readouterr().err
    set_keys(OLD, LOST)
    assert read() == [*before, {"of": "a lost key"}]
    set_keys(NEW)
    with pytest.raises(InvalidToken):
        read()
