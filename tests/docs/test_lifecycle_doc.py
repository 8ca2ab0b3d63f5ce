"""The page about the life of a run says what the code does."""

import re

import pytest
from docs.state_tables import answers

from docs import generate
from fledge.core.events import EVENTS
from fledge.core.run import PHASES, Phase


def test_the_page_is_what_the_code_would_write_now() -> None:
    assert generate.TARGET.read_text("utf-8") == generate.page(), "stale: run python -m docs.generate"
    assert generate.main(["--check"]) == 0


def test_every_phase_is_reached_in_the_picture_and_every_event_is_explained() -> None:
    page = generate.page()
    for phase in PHASES:
        assert re.search(rf"--> {phase.name}: ", page), phase.name
        assert f"### {phase.name}\n" in page
    for event in EVENTS:
        assert re.search(rf"^\| `{event.__name__}` \| \S.*\S \|$", page, re.MULTILINE), event.__name__


@pytest.mark.parametrize("phase", PHASES, ids=lambda phase: phase.name)
def test_every_phase_answers_the_four_questions(phase: type[Phase]) -> None:
    found = answers(phase)
    assert list(found) == ["Means", "Ends by", "After a crash", "Kept"]
    assert all(answer.endswith(".") for answer in found.values())


@pytest.mark.parametrize(
    "edge",
    [
        "[*] --> spawning: Admitted",
        "spawning --> queued: Prepared",
        "queued --> running: Claimed",
        "announce_deferred --> announcing: ChildrenSettled, HandedToProgram, CameDue",
        "awaiting_approval --> queued: PlanApproved, PlanRejected",
        "completed --> archived: Removed, CameDue",
        "gone --> [*]",
    ],
)
def test_the_picture_shows_the_known_arrows(edge: str) -> None:
    assert f"    {edge}\n" in generate.page()
