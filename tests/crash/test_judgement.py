"""The judge of the crash stories finds out what it is there for."""

from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from fledge.core.transcript import Told, from_body
from fledge.store.base import Tx
from fledge.testing import InlineStore, VirtualClock, run_virtual
from tests.crash.judgement import Found, judge, left
from tests.crash.players import Story, note, notes, perform
from tests.crash.stories import STORIES
from tests.sim.people import MAIN, walk

STORY = STORIES["main, an orchestrator, three workers"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    run_virtual(perform(STORY, InlineStore(tmp_path), VirtualClock(), tmp_path))
    return tmp_path


def judged(folder: Path, story: Story = STORY, spoil: Callable[[Tx], object] = lambda tx: None) -> Found:
    store = InlineStore(folder)
    store.run(spoil)
    found = store.run(lambda tx: judge(tx, story, folder, []))
    store.close_now()
    return found


def test_a_story_that_went_well_is_not_blamed(folder: Path) -> None:
    assert judged(folder).wrong == []


def test_an_answer_in_the_wrong_place_or_nowhere_is_lost(folder: Path) -> None:
    found = judged(folder, replace(STORY, told=STORY.told | {"w1": "main"}, ends=STORY.ends | {"w4": "ok"}))
    assert found.lost == ["w1 was told in ['o'] instead of main", "w4 is nowhere"]


def test_another_end_than_the_storys_is_wrong(folder: Path) -> None:
    assert (
        "w1 came out ok instead of killed" in judged(folder, replace(STORY, ends=STORY.ends | {"w1": "killed"})).other
    )


def test_an_answer_that_was_told_twice_is_doubled(folder: Path) -> None:
    def tell_again(tx: Tx) -> None:
        told = [entry for entry in tx.transcripts.entries(MAIN) if isinstance(from_body(entry.body), Told)]
        tx.transcripts.append(MAIN, 0.0, [(told[0].kind, told[0].body)])

    assert len(judged(folder, spoil=tell_again).doubled) == 1


def test_a_committed_reply_that_is_asked_for_again_and_a_tool_begun_again_are_repeated(folder: Path) -> None:
    before = [left(folder)]
    asked = next(line for line in notes(folder) if line["what"] == "asked")
    begun = next(line for line in notes(folder) if line["what"] == "begun")
    for line in (asked, begun):
        note(folder, **line)
    store = InlineStore(folder)
    found = store.run(lambda tx: judge(tx, STORY, folder, before))
    store.close_now()
    assert [words.split(" ", 1)[1] for words in found.repeated] == [
        "was asked again for a committed reply",
        "was begun again though its result was committed",
    ]


def test_a_lost_row_is_found_by_the_general_promises(folder: Path) -> None:
    def forget(tx: Tx) -> None:
        for key in walk(tx):
            if any(isinstance(from_body(entry.body), Told) for entry in tx.transcripts.entries(key)):
                tx.sessions.delete(key)

    assert any("is consumed, and in transcripts None" in words for words in judged(folder, spoil=forget).other)
