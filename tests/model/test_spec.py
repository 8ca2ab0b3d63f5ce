"""The model of delivery (`tests/model/spec`): with every rule nothing breaks, and no rule can be left out."""

from itertools import takewhile
from pathlib import Path

import pytest

from tests.effort import SOAK
from tests.model.spec.__main__ import line
from tests.model.spec.configurations import ALL, CONFIGURATIONS, MIXES, READINGS
from tests.model.spec.rules import FIXES
from tests.model.spec.search import search

FOUND_BY = {
    "unread": "single-delete",
    "handover": "single-kill",
    "settled": "api-tree",
    "evaluate": "nested-send",
    "stopping": "single-kill",
    "silent": "nested-kill-up",
    "slot": "two-phys",
    "plan": "nested-plan",
    "kinds": "foreign-late",
    "wakes": "nested2-wakes",
    "refresh": "single-delete",
    "api": "api",
    "onekill": "nested-kill-up",
    "reserve": "two-interrupt",
    "stopturn": "stop-main",
    "sweep": "foreign-late",
    "people": "say-followup",
    "at_once": "nested-yield",
    "before": "nested-yield-send",
    "progress": "single-spin",
    "resume": "nested-resume",
    "revive": "single-resume",
}
"""The smallest configuration that breaks without a fix. (Without `settled` `single-crash` is smaller, and harmless:
main counts no children.)"""


def kept(title: str) -> list[str]:
    """The lines of results.txt under a title."""
    lines = (Path(__file__).parent / "spec" / "results.txt").read_text("utf-8").splitlines()
    return list(takewhile(lambda each: not each.startswith("=="), lines[lines.index(f"== {title}") + 1 :]))


@pytest.mark.parametrize("name", CONFIGURATIONS | MIXES if SOAK else CONFIGURATIONS)
def test_with_every_rule_nothing_breaks_in_as_many_states_as_before(name: str) -> None:
    found = search(ALL[name], FIXES)
    assert found.violations == {}
    assert line(name, found) in kept("with every fix")


@pytest.mark.parametrize("fix", FIXES)
def test_without_a_rule_a_property_breaks(fix: str) -> None:
    assert search(CONFIGURATIONS[FOUND_BY[fix]], FIXES.keys() - {fix}).violations != {}


@pytest.mark.parametrize("name", READINGS)
def test_another_reading_breaks_a_property(name: str) -> None:
    assert len(search(READINGS[name], FIXES).violations) == 1


@pytest.mark.parametrize("name", CONFIGURATIONS if SOAK else ["single-kill", "nested-plan", "two-interrupt"])
def test_the_first_draft_breaks_as_it_did(name: str) -> None:
    assert line(name, search(CONFIGURATIONS[name], ())) in kept("the first draft")


def test_a_violation_is_told_with_the_shortest_way_to_it() -> None:
    (violation,) = search(READINGS["no-cap"], FIXES).violations.values()
    assert violation.why == "P4: 2 active children of 0, cap 1"
    assert violation.trace == (
        "main: idle, drains its inbox, turn opened",
        "main: model replies with a spawn call",
        "main: run 1 admitted (spawning)",
        "main: run 1 prepared, accepted",
        "main: model replies with a spawn call",
        "main: run 2 admitted (spawning)",
    )


def test_an_unknown_fix_is_refused() -> None:
    with pytest.raises(ValueError, match="no such fix: unred"):
        search(CONFIGURATIONS["api"], ["unred"])
