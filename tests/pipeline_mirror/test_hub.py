"""The mirror on the Hugging Face Hub: the real library, and a stand-in that speaks its API."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from huggingface_hub import ModelCard

from model_registry import registry
from pipeline_config import ConfigError, with_overrides
from pipeline_mirror.__main__ import main
from pipeline_mirror.errors import MirrorError, ServerAwayError
from pipeline_mirror.hub_mirroring import HubReport, mirror_to_hub
from pipeline_mirror.hub_server import HubServer
from pipeline_mirror.passes import store_label
from pipeline_store import uris
from pipeline_store.formats import FileDigest, Installation, ModelExports
from pipeline_store.layout import StoreLayout
from tests.model_registry.runs import CONFIG, FinishedRun
from tests.pipeline_mirror.hub import TOKEN, Commit, Hub, Repository, hub_running

NAME = "acme/bert-default"


@pytest.fixture(autouse=True)
def _plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPRETRAIN_HUB_REPOSITORY", "acme/bert-{lineage}")
    # The other way to store large files needs a server of its own.
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_XET", True)


@pytest.fixture
def hub() -> Iterator[Hub]:
    with hub_running() as running:
        yield running


class World:
    """A store whose runs are promoted, and its mirror."""

    def __init__(self, folder: Path, hub: Hub) -> None:
        self.root, self.hub = str(folder / "store"), hub
        self.in_use: str | None = None
        Installation(id=folder.name).write(f"{self.root}/installation.json")

    def promote(self, name: str, *formats: str) -> FinishedRun:
        run = FinishedRun(self.root, name, parent=self.in_use)
        if formats:
            run.export(*formats)
        registry.publish(run.store, run.run)
        registry.promote(
            run.lineage, run.version_id, expected_baseline=self.in_use, reason="better"
        )
        self.in_use = run.version_id
        return run

    def roll_back(self, run: FinishedRun) -> None:
        registry.rollback(run.lineage, run.version_id, reason="wrong words", by="Ada")
        self.in_use = run.version_id

    def mirror(self) -> HubReport:
        """Make a pass in which nothing goes wrong."""
        report = self.try_to()
        assert report.problems == []
        return report

    def try_to(self) -> HubReport:
        return mirror_to_hub(StoreLayout(self.root), TOKEN, self.hub.address)

    @property
    def repository(self) -> Repository:
        return self.hub.repositories[NAME]

    def mark(self, revision: str = "main") -> str:
        """Return the version that a branch or tag has."""
        found: dict[str, str] = json.loads(self.hub.files(NAME, revision)["repretraining.json"])
        return found["version"]


@pytest.fixture
def world(tmp_path: Path, hub: Hub) -> World:
    return World(tmp_path, hub)


def reads(hub: Hub) -> bool:
    """Return whether nothing but questions were asked."""
    return all(one.startswith(("GET", "HEAD")) for one in hub.asked)


def test_main_is_the_version_in_use_and_a_tag_is_each_version(world: World) -> None:
    run = world.promote("1")
    report = world.mirror()
    assert str(report) == (f"1 version(s) added; {NAME} uses {run.version_id}; 0 problem(s)")
    assert world.repository.private
    folder = uris.join(run.lineage.version(run.version_id), "hugging_face")
    for revision in ("main", run.version_id):
        files = world.hub.files(NAME, revision)
        assert files.keys() == {
            *(".gitattributes", "README.md", "repretraining.json", "below/weights"),
        }
        assert files["below/weights"] == uris.read(f"{folder}/below/weights")
        assert world.mark(revision) == run.version_id
    # Committed twice, and sent once.
    assert len(world.hub.uploads) == 1


def test_a_second_pass_only_asks(world: World) -> None:
    world.promote("1")
    world.mirror()
    world.hub.asked.clear()
    assert str(world.mirror()) == "0 version(s) added; 0 problem(s)"
    assert world.hub.asked
    assert reads(world.hub)


def test_main_follows_promotion_and_rollback(world: World) -> None:
    first = world.promote("1")
    world.mirror()
    second = world.promote("2")
    world.mirror()
    assert world.mark() == second.version_id
    sent = len(world.hub.uploads)
    world.roll_back(first)
    assert world.mirror().moved == {NAME: first.version_id}
    assert world.mark() == first.version_id
    assert world.hub.files(NAME, "main") == world.hub.files(NAME, first.version_id)
    assert world.repository.tags.keys() == {first.version_id, second.version_id}
    assert world.repository.history() == [
        f"{first.version_id} is in use again",
        f"{second.version_id} is in use",
        f"{first.version_id} is in use",
        "initial commit",
    ]
    # The Hub has the weights already.
    assert len(world.hub.uploads) == sent
    third = world.promote("3")
    world.mirror()
    assert world.repository.history()[0] == f"{third.version_id} is in use"


def test_the_card_is_valid_and_names_no_place_of_the_store(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REPRETRAIN_HUB_LICENSE", "apache-2.0")
    first = world.promote("1")
    second = world.promote("2")
    world.mirror()
    text = world.hub.files(NAME, "main")["README.md"].decode()
    card = ModelCard(text)
    assert card.data.license == "apache-2.0"
    assert (card.data.library_name, card.data.pipeline_tag) == ("transformers", "fill-mask")
    assert "bert" in card.data.tags
    assert card.data.eval_results
    scores = {one.metric_type: one.metric_value for one in card.data.eval_results}
    assert scores.keys() == {"loss", "perplexity", "accuracy"}
    assert f"| {second.partition} | this version | 40 | {scores['loss']:.4f} |" in text
    assert f"| continues | `{first.version_id}` |" in text
    assert world.root not in text
    assert "Ada" not in text


def test_the_card_of_the_export_is_kept_and_its_metadata_are_not(world: World) -> None:
    run = FinishedRun(world.root, "1")
    data = b'---\nlibrary_name: old\n---\n\n# A model\n\npipeline(model="THIS_FOLDER")\n'
    uris.write(f"{run.run.exports.root}/one-try/hugging_face/README.md", data)
    exports = ModelExports.load(run.run.exports.record)
    exported = exports.formats["hugging_face"]
    files = [*exported.files, FileDigest.of("README.md", data)]
    changed = exports.formats | {"hugging_face": exported.model_copy(update={"files": files})}
    exports.model_copy(update={"formats": changed}).write(run.run.exports.record)
    registry.publish(run.store, run.run)
    registry.promote(run.lineage, run.version_id, expected_baseline=None, reason="better")
    world.mirror()
    text = world.hub.files(NAME, "main")["README.md"].decode()
    assert ModelCard(text).data.library_name == "transformers"
    assert f'# A model\n\npipeline(model="{NAME}")' in text
    assert text.count("library_name") == 1


def test_wrong_metadata_are_the_problem_of_a_version_in_the_hubs_words(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REPRETRAIN_HUB_LICENSE", "ours-alone")
    run = world.promote("1")
    problems = world.try_to().problems
    assert {one.partition(": ")[0] for one in problems} == {f"version {run.version_id} of {NAME}"}
    assert '"license" must be one of' in problems[0]
    assert world.hub.files(NAME, "main").keys() == {".gitattributes"}
    monkeypatch.setenv("REPRETRAIN_HUB_LICENSE", "other")
    world.mirror()
    assert world.mark() == run.version_id


def test_an_outage_is_made_up_for(world: World) -> None:
    first = world.promote("1")
    world.mirror()
    world.hub.broken = "/"
    second = world.promote("2")
    third = world.promote("3")
    world.roll_back(second)
    with pytest.raises(ServerAwayError, match="503"):
        world.try_to()
    world.hub.broken = ""
    assert len(world.mirror().versions) == 2
    assert world.repository.tags.keys() == {one.version_id for one in (first, second, third)}
    assert world.mark() == second.version_id
    # What was in use in between only, main has never been.
    assert not [title for title in world.repository.history() if third.version_id in title]


def test_a_hub_that_is_not_there_is_away(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.promote("1")
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    with pytest.raises(ServerAwayError, match="The Hub cannot be asked"):
        mirror_to_hub(StoreLayout(world.root), TOKEN, "http://127.0.0.1:1")


@pytest.mark.parametrize("part", ["/commit/versions", "/tag/", "/branch/", "/commit/main"])
def test_a_pass_that_was_cut_off_is_made_again(world: World, part: str) -> None:
    run = world.promote("1")
    if part != "/branch/":
        world.mirror()
        run = world.promote("2")
    world.hub.broken = part
    with pytest.raises(ServerAwayError):
        world.try_to()
    world.hub.broken = ""
    world.mirror()
    assert world.mark() == world.mark(run.version_id) == run.version_id
    for branch in ("main", "versions"):
        titles = world.repository.history(branch)
        assert len(titles) == len(set(titles))


def test_what_signs_an_address_is_not_said(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.utils._http.time.sleep", lambda seconds: None)
    world.promote("1")
    world.hub.broken = "/large/"
    with pytest.raises(ServerAwayError) as caught:
        world.try_to()
    assert "/large/" in str(caught.value)
    assert "secret-signature" not in str(caught.value)
    assert TOKEN not in str(caught.value)


def test_a_wrong_token_is_refused_and_not_said(world: World) -> None:
    world.promote("1")
    with pytest.raises(ServerAwayError) as caught:
        mirror_to_hub(StoreLayout(world.root), "hf_wrong", world.hub.address)
    assert "401" in str(caught.value)
    assert "hf_wrong" not in str(caught.value)


def test_a_repository_of_somebody_else_is_left_alone(world: World) -> None:
    world.promote("1")
    files = {"pytorch_model.bin": b"mine"}
    theirs = Repository(private=False)
    theirs.add("main", Commit(files, "mine", "", None))
    world.hub.repositories[NAME] = theirs
    [problem] = world.try_to().problems
    assert "was not made by a mirror" in problem
    assert "REPRETRAIN_HUB_REPOSITORY" in problem
    assert theirs.history() == ["mine"]


def test_two_stores_do_not_change_each_others(world: World, tmp_path: Path) -> None:
    run = world.promote("1")
    world.mirror()
    other = World(tmp_path / "other", world.hub)
    other.promote("2")
    [problem] = other.try_to().problems
    assert "was not made by the mirror of this store" in problem
    assert world.repository.tags.keys() == {run.version_id}


def test_of_two_passes_at_once_one_is_refused(world: World) -> None:
    first = world.promote("1")
    world.mirror()
    server = HubServer(TOKEN, store_label(StoreLayout(world.root)) or "", world.hub.address)
    seen = server.open(NAME)
    world.promote("2")
    world.mirror()
    folder = Path(world.root, "folder")
    folder.mkdir()
    (folder / "README.md").write_text("---\nlicense: mit\n---\n")
    with pytest.raises(MirrorError, match="412"):
        server.put_in_use(seen, folder, ["README.md"], title="late", reason="")
    assert world.mark() != first.version_id


def test_a_version_that_transformers_cannot_read_is_left_out(world: World) -> None:
    run = world.promote("1", "hugging_face", "saved_model")
    config = with_overrides(CONFIG, {"promotion.export_formats": ["saved_model"]})
    other = FinishedRun(world.root, "2", parent=run.version_id)
    other.export("saved_model")
    uris.write(other.run.config, config.to_bytes())
    registry.publish(other.store, other.run)
    assert world.mirror().versions == [run.version_id]
    registry.promote(
        other.lineage, other.version_id, expected_baseline=run.version_id, reason="better"
    )
    [problem] = world.try_to().problems
    assert "has no files for transformers" in problem
    assert world.mark() == run.version_id


def test_a_changed_byte_is_never_pushed(world: World) -> None:
    first = world.promote("1")
    world.mirror()
    second = world.promote("2")
    place = uris.join(second.lineage.version(second.version_id), "hugging_face/below/weights")
    uris.write(place, uris.read(place)[:-1] + b"!")
    problems = world.try_to().problems
    assert {"is damaged" in one for one in problems} == {True}
    assert world.mark() == first.version_id
    assert world.repository.tags.keys() == {first.version_id}


def test_without_a_token_nothing_is_asked(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    run = world.promote("1")
    caplog.set_level("INFO")
    monkeypatch.delenv("HF_TOKEN", raising=False)
    assert main(["hub", "--store", world.root]) == 0
    assert f"dry run, as there is no token: {NAME} would hold {run.version_id}" in caplog.text
    assert world.hub.asked == []


def test_a_version_as_a_folder(world: World, tmp_path: Path) -> None:
    run, folder = world.promote("1"), tmp_path / "folder"
    command = ["hub-folder", "--store", world.root, "--version", run.version_id]
    assert main([*command, "--output", str(folder)]) == 0
    found = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert found == {"README.md", "repretraining.json", "below/weights"}
    assert ModelCard.load(folder / "README.md").data.library_name == "transformers"
    # Not over what somebody has there.
    assert main([*command, "--output", str(folder)]) == 1


def test_each_lineage_needs_a_repository_of_its_own(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.promote("1")
    for name in ("", "bert-{lineage}", "acme/bert", "acme/bert/{lineage}"):
        monkeypatch.setenv("REPRETRAIN_HUB_REPOSITORY", name)
        with pytest.raises(ConfigError, match=r"such as acme/bert-\{lineage\}"):
            world.try_to()


def test_a_mirror_says_what_to_install(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.promote("1")
    monkeypatch.delitem(sys.modules, "pipeline_mirror.hub_server", raising=False)
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ImportError, match=r"requirements-hub\.txt"):
        world.try_to()
