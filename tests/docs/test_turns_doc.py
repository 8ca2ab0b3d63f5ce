"""The page about the turns of a conversation says what the code does."""

import re

import pytest
from docs.state_tables import QUESTIONS, answers

from docs import generate, turns_page
from fledge.core.turn import Wait


def test_the_page_is_what_the_code_would_write_now() -> None:
    assert turns_page.TARGET.read_text("utf-8") == turns_page.page(), "stale: run python -m docs.generate"
    assert generate.PAGES[turns_page.TARGET] is turns_page.page


def test_every_state_is_reached_in_the_picture_and_every_event_is_explained() -> None:
    page = turns_page.page()
    for name in (*turns_page.PICTURE, *turns_page.WAITS):
        assert re.search(rf"--> {name}: ", page), name
    for name in turns_page.STATES:
        assert f"### {name}\n" in page
    for event in turns_page.EVENTS:
        assert re.search(rf"^\| `{event.__name__}` \| \S.*\S \|$", page, re.MULTILINE), event.__name__


@pytest.mark.parametrize("state", [*turns_page.STATES.values(), Wait], ids=lambda state: state.__name__)
def test_every_state_answers_the_four_questions(state: type) -> None:
    found = answers(state)
    assert tuple(found) == QUESTIONS
    assert all(answer.endswith(".") for answer in found.values())


def test_a_docstring_that_lacks_an_answer_is_refused() -> None:
    class Asleep:
        """Means: nothing is done."""

    with pytest.raises(ValueError, match="the docstring of Asleep must answer Means, Ends by, After a crash, Kept"):
        answers(Asleep)


@pytest.mark.parametrize(
    "edge",
    [
        "[*] --> idle",
        "due --> driven: TurnClaimed",
        "driven --> asking_person: TurnAsked",
        "driven --> due_again: TurnFailed, TurnLost",
        "asking_person --> due_again: TurnAnswered",
        "no_wait --> waiting: TurnYielded",
        "wait_over --> no_wait: TurnClaimed, TurnStopped",
    ],
)
def test_the_picture_shows_the_known_arrows(edge: str) -> None:
    assert f"    {edge}\n" in turns_page.page()
