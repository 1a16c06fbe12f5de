"""The operating guide has a line for each secret of a team server, with what rotates it."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import yaml

from tests.verification.compose.compose_file import FOLDER, read_env_file
from tests.verification.compose.secret_files import make_secrets

GUIDE = Path(__file__).parents[3] / "docs" / "operate" / "operation.md"
SERVER = GUIDE.read_text().partition("### On a team server\n")[2].partition("\n#")[0]
ROWS = {
    name: cells
    for line in re.findall(r"^\| `.*", SERVER, re.MULTILINE)
    for cells in [line.strip("| ").split(" | ")]
    for name in re.findall(r"`(\w+)`", cells[0])
    if name != "env"
}
# Of .env: may hold a key though it should not. SECRETS_DIR is a folder.
SECRET_NAME = re.compile(r"PASSWORD|SECRET(?!S_DIR)|TOKEN|_KEY|CREDENTIAL|CONNECTION")


def holders(secret: str) -> set[str]:
    """Return the services that go on and have a secret, which have to be restarted for it."""
    services = yaml.safe_load((FOLDER / "compose.yaml").read_text())["services"]
    return {
        name
        for name, service in services.items()
        if secret in service.get("secrets", ()) and service.get("restart") != "no"
    }


def declared() -> set[str]:
    files = (FOLDER / name for name in ("compose.yaml", "credentials.yaml"))
    return {name for file in files for name in yaml.safe_load(file.read_text())["secrets"]}


def test_each_secret_has_a_line() -> None:
    variables = set(filter(SECRET_NAME.search, read_env_file(FOLDER / ".env.example")))
    assert variables == {"GOOGLE_CLOUD_CONNECTION"}
    assert set(ROWS) == declared() | variables
    assert all(len(cells) == 5 and all(cells) for cells in ROWS.values())


def test_what_rotates_them_is_what_there_is(tmp_path: Path) -> None:
    make_secrets(tmp_path)
    made = {path.name for path in (tmp_path / "secrets").iterdir()}
    rotated = set()
    for cells in ROWS.values():
        for name in re.findall(r"--rotate (\w+)", cells[2]):
            make_secrets(tmp_path, "--rotate", name)
            rotated |= set(re.findall(r"`(\w+)`", cells[0]))
    assert rotated == made


def test_the_commands_name_services_and_files_that_there_are(tmp_path: Path) -> None:
    make_secrets(tmp_path)
    services = set(yaml.safe_load((FOLDER / "compose.yaml").read_text())["services"])
    blocks = re.findall(r"^```bash cloud\n(.*?)^```", SERVER, re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines()]
    assert lines
    for line in lines:
        for service in re.findall(r"exec (?:-T )?(\S+)", line):
            assert service in services
        for name in re.findall(r"secrets/(\w+)", line):
            assert (tmp_path / "secrets" / name).exists()
        for options in re.findall(r"python3 make_secrets.py (--rotate [a-z_]+)", line):
            make_secrets(tmp_path, *shlex.split(options))
        if "--force-recreate" in line and "SERVICE" not in line:
            assert set(line.partition("--force-recreate")[2].split()) == holders("jwt_secret")
    four = re.search(r"\*all four\* are `(.*?)`", SERVER)
    assert four
    assert set(four[1].split()) == holders("jwt_secret") == holders("database_url")
    for cells in ROWS.values():
        assert set(re.findall(r"`(scheduler|api-server|postgres)`", " ".join(cells))) <= services
