"""Tool calls and plans that wait for the person in a chat, as its screen shows them.

Kept apart from the chat: the ids of open questions come from the feed, answers come from the screen, and this file
makes no requests.
"""

import os
from collections import Counter
from collections.abc import Callable

from fledge.api.values import Plan, Question
from fledge.cli.term import shown
from fledge.cli.term.shown import OpenQuestions
from fledge.core.doing import whole_call_text


class Questions:
    """The questions and plans that wait for the person. One that is still open after it was answered is shown again,
    under a new id: the screen shows no id twice."""

    def __init__(self) -> None:
        self._home = os.path.expanduser("~")
        self.open: tuple[str, ...] = ()
        """Ids of the calls that wait, as the feed reports them."""
        self.questions: list[Question] = []
        self.plans: list[Plan] = []
        self._times: Counter[str] = Counter()

    def has_plan_of(self, session_key: str) -> bool:
        """True if this subagent's plan waits."""
        return any(plan.session_key == session_key for plan in self.plans)

    def shown(self, who: Callable[[str], str]) -> OpenQuestions:
        """All of them for the screen, the oldest first, plans last."""
        return (
            *(
                shown.CallQuestion(
                    self._id(one.id),
                    who(one.session_key),
                    whole_call_text(one.tool, one.arguments, one.change),
                    place=from_home(one.cwd, self._home),
                    always=one.always,
                    for_subagents=one.for_subagents,
                )
                for one in self.questions
            ),
            *(shown.PlanQuestion(self._id(one.run_id), who(one.session_key), one.text) for one in self.plans),
        )

    def answered(self, shown_id: str) -> Question | Plan | None:
        """The question or plan that the person answered, by its id on the screen; None if it is not open any more."""
        waiting: dict[str, Question | Plan] = {one.id: one for one in self.questions}
        waiting |= {one.run_id: one for one in self.plans}
        key = next((key for key in waiting if self._id(key) == shown_id), "")
        if key:
            self._times[key] += 1
        return waiting.get(key)

    def _id(self, key: str) -> str:
        return f"{key}#{self._times[key]}"


def from_home(folder: str, home: str) -> str:
    """A folder as people write it: with `~` for the home folder."""
    return f"~{folder.removeprefix(home)}" if folder == home or folder.startswith(f"{home}/") else folder
