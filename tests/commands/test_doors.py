"""A verb that changes something is at every door, or a reason is written here why not: a person or program that can
begin something must be able to undo it from where they stand."""

from pathlib import Path
from typing import Final, get_args

import pytest

import fledge
from fledge.commands.index import READS
from fledge.commands.methods import METHODS
from fledge.core.access import Action
from tests.statements import proves

PACKAGE: Final = Path(fledge.__file__).parent
FILES: Final = {
    "command line": ("cli/*.py",),
    "slash commands": ("commands/orders.py",),  # of the chat, of channels and of the page
    "library": ("client/guest*.py",),  # a program at a folder that another process holds calls verbs
}
"""By door: the files that name the verbs it calls."""
ELSEWHERE: Final = {
    ("answer", "slash commands"): "/allow, /deny and /subagents approve know which of the two is meant",
    ("answer", "library"): "fl.approve and fl.deny are for calls, approve_plan and reject_plan for plans",
    ("documents.accept", "library"): "a person accepts what documents say to models",
    ("page.link", "slash commands"): "signs a browser in: only on the machine itself, by `fledge page`",
    ("page.link", "library"): "signs a browser in: only on the machine itself, by `fledge page`",
    ("runs.send", "command line"): "`fledge send` takes conversations and runs: `send`",
    ("runs.send", "slash commands"): "/tell speaks in the name of the conversation: `runs.tell`",
    ("runs.tell", "command line"): "speaks in the name of a conversation: in that conversation",
    ("runs.tell", "library"): "speaks in the name of a conversation: in that conversation",
    ("send", "library"): "`agent` does the same, and can be repeated by its key",
    ("sessions.delete", "command line"): "a conversation is the person's; a program deletes its own",
    ("sessions.delete", "slash commands"): "a conversation is the person's; a program deletes its own",
    ("sessions.focus", "command line"): "binds the place on a channel where the command is given",
    ("sessions.focus", "library"): "binds the place on a channel where the command is given",
    ("sessions.unfocus", "command line"): "binds the place on a channel where the command is given",
    ("sessions.unfocus", "library"): "binds the place on a channel where the command is given",
    ("sessions.open", "slash commands"): "a command is given in a conversation that is open; /new is the chat's own",
    ("sessions.open", "library"): "a conversation of a program begins with its first message",
    ("sessions.patch", "command line"): "the model of a conversation is set in it: /model",
    ("sessions.patch", "library"): "a program names model and thinking with each message",
    ("signins.end", "slash commands"): "signs a browser out: Settings of the page, `fledge page --sign-out`",
    ("signins.end", "library"): "signs a browser out: Settings of the page, `fledge page --sign-out`",
    ("slash.run", "slash commands"): "is how they are carried out",
    ("slash.run", "library"): "a program calls the function that a slash command is for",
}
"""By verb and door: why it is not there."""
OF_A_CONNECTION: Final = frozenset(["events.subscribe", "events.unsubscribe"])
"""Begin and end a feed on one connection; every door that shows something has one."""
DEEDS: Final = sorted(METHODS.keys() - READS - OF_A_CONNECTION)


def calls(door: str, verb: str) -> bool:
    """True if a file of this door names the verb, or its group with any action."""
    names = (f'"{verb}"', f"'{verb}'", f'f"{verb.partition(".")[0]}.{{')
    texts = (path.read_text("utf-8") for pattern in FILES[door] for path in PACKAGE.glob(pattern))
    return any(name in text for text in texts for name in names)


@proves("4.tools.65", "What changes something is at every door: command line, slash commands, library, gateway")
@pytest.mark.parametrize("door", FILES)
@pytest.mark.parametrize("verb", DEEDS)
def test_a_verb_is_at_every_door_or_a_reason_says_why_not(verb: str, door: str) -> None:
    assert calls(door, verb) != ((verb, door) in ELSEWHERE)


def test_a_reason_is_about_a_verb_and_a_door_that_there_are() -> None:
    assert {verb for verb, _ in ELSEWHERE} <= set(DEEDS)
    assert {door for _, door in ELSEWHERE} <= FILES.keys()


@proves("4.tools.65")
@pytest.mark.parametrize("action", sorted(set(get_args(Action)) - {"list"}))
def test_a_person_and_a_program_can_do_to_a_run_what_a_model_can(action: str) -> None:
    verb = f"plans.{action}" if action in ("approve", "reject") else f"runs.{action}"
    assert verb in METHODS
    assert all(calls(door, verb) for door in FILES)
    page = "\n".join(path.read_text("utf-8") for path in PACKAGE.glob("web/*.js"))
    assert f'"{verb}"' in page
