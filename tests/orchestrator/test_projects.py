"""Conversations of project folders on rows: what they are when they begin, whose they are, what `main` means there."""

import pytest

from fledge.core.keys import project_key
from fledge.errors import Refused
from fledge.orchestrator import spawn, visibility
from fledge.store.base import Session
from tests.model.world import MAIN
from tests.orchestrator.scene import PROGRAM, Scene, scene_fixture
from tests.statements import proves

scene = pytest.fixture(scene_fixture)

FOLDER = "/src/My Docs"
DOCS = project_key(FOLDER)


def opened(scene: Scene, key: str, folder: str = "") -> Session:
    scene.commit(lambda c: spawn.open_conversation(c, key, folder))
    found = scene.read(lambda tx: tx.sessions.get(key))
    assert found is not None
    return found


def test_the_conversation_of_a_folder_is_a_main_one_that_works_there(scene: Scene) -> None:
    session = opened(scene, DOCS, FOLDER)
    assert (session.kind, session.facts.project, session.facts.label) == ("main", FOLDER, "My Docs")
    assert opened(scene, DOCS, FOLDER) == session
    assert opened(scene, DOCS) == session
    assert opened(scene, DOCS, "/elsewhere") == session


def test_another_conversation_that_is_begun_in_a_folder_works_there_too(scene: Scene) -> None:
    session = opened(scene, "agent:main:trip", FOLDER)
    assert (session.kind, session.facts.project, session.facts.label) == ("named", FOLDER, "")


def test_main_belongs_to_no_folder(scene: Scene) -> None:
    session = opened(scene, "agent:critic:main", FOLDER)
    assert (session.kind, session.facts.project, session.facts.label) == ("main", "", "")


def test_one_that_was_begun_by_its_name_becomes_the_folders_when_that_is_begun(scene: Scene) -> None:
    assert opened(scene, DOCS).kind == "named"
    session = opened(scene, DOCS, FOLDER)
    assert (session.kind, session.facts.project, session.facts.label) == ("main", FOLDER, "My Docs")


@proves(
    "7.input.34", "A folder whose conversation would have the name of another folder's, or of a program, is refused"
)
def test_a_name_that_another_folder_or_a_program_has_is_refused(scene: Scene) -> None:
    names: dict[str, str] = {}
    folders = (f"/src/{number}/docs" for number in range(100_000))
    one, twin = next((first, each) for each in folders if (first := names.setdefault(project_key(each), each)) != each)
    session = opened(scene, project_key(one), one)
    with pytest.raises(Refused, match=f"is the conversation of {one}: name another one with --session"):
        opened(scene, project_key(twin), twin)
    assert scene.read(lambda tx: tx.sessions.get(project_key(one))) == session
    scene.commit(lambda c: spawn.open_program(c, DOCS))
    with pytest.raises(Refused, match="is the conversation of a program"):
        opened(scene, DOCS, FOLDER)


def test_main_means_the_projects_conversation_to_what_belongs_to_it(scene: Scene) -> None:
    opened(scene, DOCS, FOLDER)
    scene.commit(lambda c: spawn.open_program(c, PROGRAM))
    scene.send(DOCS, "hello", None)
    child = scene.spawn(scene.start(DOCS))
    sessions = (DOCS, child, MAIN, PROGRAM, "agent:main:nobody")
    meant = scene.read(lambda tx: [visibility.key_meant(tx, session, " Main ") for session in sessions])
    assert meant == [DOCS, DOCS, MAIN, MAIN, MAIN]
    assert scene.read(lambda tx: visibility.key_meant(tx, child, MAIN)) == MAIN
