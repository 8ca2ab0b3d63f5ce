"""A child's outcome as it is posted to a person."""

from typing import Any

import pytest

from fledge.core.announce import Completion, for_people
from fledge.core.run import Failed, Ok, TimedOut

KEY = "agent:main:subagent:7f"


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"result": "42"}, '[Subagent] "survey" completed successfully\n\n42'),
        ({"result": ""}, '[Subagent] "survey" completed successfully\n\n(no output)'),
        ({"outcome": Failed("no model")}, '[Subagent] "survey" failed: no model'),
        ({"outcome": TimedOut(), "result": "half"}, '[Subagent] "survey" timed out\n\nhalf'),
        ({"result": "a\x1b[2Jb\r\nc"}, '[Subagent] "survey" completed successfully\n\na[2Jb\nc'),
        (
            {"kind": "plan", "result": "first this", "plan": "planning"},
            f'[PLAN READY] "survey" plan completed\n\nfirst this\n\nIt waits for an answer: {KEY}',
        ),
    ],
)
def test_a_person_is_shown_the_status_and_then_the_words_without_control_characters(
    changed: dict[str, Any], text: str
) -> None:
    told = Completion(
        **{"kind": "outcome", "child_session_key": KEY, "run_id": "r", "outcome": Ok(), "label": "survey", **changed}
    )
    assert for_people(told) == text
