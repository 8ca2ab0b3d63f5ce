"""What the generated pages about states share: the four answers of a state's docstring, and tables of them.

A docstring answers what the state means, what ends it, what a crash leaves and how long it is kept, in this order; one
that lacks an answer is refused.
"""

import inspect
import re

QUESTIONS = ("Means", "Ends by", "After a crash", "Kept")
TITLES = {
    "Means": "What it means",
    "Ends by": "What ends it",
    "After a crash": "After a crash",
    "Kept": "How long it is kept",
}


def answers(state: type) -> dict[str, str]:
    """The four answers of a state's docstring; a docstring that lacks one is refused."""
    text = inspect.cleandoc(state.__doc__ or "")
    parts = re.split(rf"^({'|'.join(QUESTIONS)}): ", text, flags=re.MULTILINE)
    found = dict(zip(parts[1::2], (" ".join(part.split()) for part in parts[2::2]), strict=True))
    if parts[0] or tuple(found) != QUESTIONS:
        raise ValueError(f"the docstring of {state.__name__} must answer {', '.join(QUESTIONS)}, in this order")
    return found


def answer_rows(title: str, state: type) -> list[str]:
    """A heading, and a table of the four answers."""
    rows = [f"### {title}", "", "| | |", "|---|---|"]
    return rows + [f"| {TITLES[question]} | {cell(answer)} |" for question, answer in answers(state).items()]


def event_table(events: tuple[type, ...]) -> str:
    """Each event with what it means, by its docstring."""
    rows = ["| event | meaning |", "|---|---|"]
    rows += [f"| `{event.__name__}` | {cell(' '.join((event.__doc__ or '').split()))} |" for event in events]
    return "\n".join(rows)


def cell(text: str) -> str:
    """Text that cannot break out of its table cell."""
    return text.replace("|", "\\|")
