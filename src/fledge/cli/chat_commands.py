"""The chat's own commands, besides the slash commands that work at every entry point: their names, their forms and
their completion.

Pure. `chat` carries them out; `commands.orders` carries out the slash commands.
"""

import time
from collections.abc import Callable, Sequence
from itertools import chain, count
from typing import Final, Literal

from fledge.api.values import RunInfo
from fledge.commands import slash
from fledge.commands.slash import WordChoice
from fledge.commands.values import Below, SessionPage, SessionRow
from fledge.core.freeze import one_line
from fledge.core.keys import conversation_name

Name = Literal["open", "cost", "copy", "expand", "new", "resume", "clear", "quit"]

COMMANDS: Final[tuple[tuple[Name, str, str], ...]] = (
    ("open", "/open <id|#>", "the whole result of a subagent"),
    ("expand", "/expand [id|#]", "what the last tool call gave back, here or in a subagent"),
    ("cost", "/cost", "tokens and money of this conversation and its subagents"),
    ("copy", "/copy", "the last answer into the clipboard, and into a file"),
    ("new", "/new [name]", "begin another conversation"),
    ("resume", "/resume [name|#]", "list conversations, or go on with one"),
    ("clear", "/clear", "empty the terminal; the conversation stays"),
    ("quit", "/quit", "leave; nothing is lost by it"),
)
_NAMES: Final[dict[str, Name]] = {name: name for name, _, _ in COMMANDS} | {"exit": "quit", "bye": "quit"}
KEYS: Final = """Enter sends, or queues while the agent works; Alt-Enter, or \\ before Enter, begins another line
Esc or Ctrl-C stops the turn and gives unread words back; twice between turns it leaves, as Ctrl-D does
Ctrl-T all subagents · Ctrl-O tool output · Ctrl-G editor · Ctrl-R history · Ctrl-Y answer the question
Tab completes commands · @ completes files · !command runs here, and its output joins the next message"""
WORDS_CHARS: Final = 60


def read(line: str) -> tuple[Name, str] | None:
    """The chat command on a line, and the rest of the line; None if the line is no chat command."""
    word, _, rest = line.strip().partition(" ")
    name = _NAMES.get(word[1:].lower()) if word.startswith("/") else None
    return None if name is None else (name, rest.strip().strip('"'))


def help_text() -> str:
    """The commands of the chat, and its keys, for people."""
    width = max(len(form) for _, form, _ in COMMANDS)
    return "\n".join([*(f"{form:<{width}}  {meaning}" for _, form, meaning in COMMANDS), "", KEYS])


class Completions:
    """Completes a typed line. The chat keeps the lists up to date; `models` is called when models are completed."""

    def __init__(self) -> None:
        self.targets: Sequence[WordChoice] = ()
        self.conversations: Sequence[WordChoice] = ()
        self.models: Callable[[], Sequence[WordChoice]] = tuple

    def __call__(self, line: str) -> list[WordChoice]:
        """The completions of the last word of a line, each with its meaning."""
        found = slash.complete(line, self.targets)
        command, blank, rest = line.partition(" ")
        if not blank:
            own = [(form.split()[0], meaning) for _, form, meaning in COMMANDS]
            return [*found, *(one for one in own if command and one[0].startswith(command))]
        if " " in rest:
            return found
        match command.lower():
            case "/open" | "/expand":
                return slash.fitting(rest, slash.quoted(self.targets))
            case "/resume":
                return slash.fitting(rest, self.conversations)
            case "/model":
                return slash.fitting(rest, [*self.models(), ("default", "as the settings say")])
            case _:
                return found


# ---- conversations ---------------------------------------------------------------------------------------------------


def key_of(name: str, agent: str) -> str:
    """The session key of a conversation by its name: `name` for the same agent, `agent:name` for another."""
    other, _, rest = name.partition(":")
    return f"agent:{other}:{rest}" if rest else f"agent:{agent}:{name}"


def new_name(known: Sequence[str], at: time.struct_time, project: str = "") -> str:
    """A name for a new conversation that no known one has: the name of the project's conversation with a number;
    outside a project the date and time, with a number if that name is taken."""
    base = project or time.strftime("%b%d-%H%M", at).lower()
    numbered = (f"{base}-{number}" for number in count(2))
    return next(name for name in chain([] if project else [base], numbered) if name not in known)


def conversations(page: SessionPage) -> list[WordChoice]:
    """Conversations by name, each with its project folder, how long ago it was updated, and its first words."""
    return [(conversation_name(row.key), _about(row, page.now_at)) for row in page.rows]


def _about(row: SessionRow, now: float) -> str:
    first = one_line(row.first_words, WORDS_CHARS) or "nothing yet"
    return " · ".join(filter(None, [row.project, ago(now - row.updated_at), first]))


def resumed(word: str, rows: Sequence[SessionRow], listed: Sequence[str], agent: str) -> str | None:
    """The key of the conversation that a word names: by its number in the list that was shown (`listed`), its name, or
    its project folder's name; None if no conversation matches, or several."""
    is_number = word.isdecimal() and 1 <= int(word) <= len(listed)
    key = listed[int(word) - 1] if is_number else key_of(word, agent)
    labelled = [row.key for row in rows if row.label and row.label.casefold() == word.casefold()]
    return key if key in [row.key for row in rows] else labelled[0] if len(labelled) == 1 else None


def ago(seconds: float) -> str:
    """How long ago something was."""
    for unit_s, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= unit_s:
            return f"{int(seconds // unit_s)} {unit} ago"
    return "just now"


# ---- cost ------------------------------------------------------------------------------------------------------------


def cost_lines(own: Below, runs: Sequence[RunInfo]) -> list[str]:
    """Tokens and cost of a conversation, of its subagents, and of all together, as lines."""
    own_tokens = own.tokens_in + own.tokens_out
    lines = [_cost("this conversation", own_tokens, [own.cost_usd])]
    if below := [one for run in runs for one in _all(run)]:
        tokens, costs = sum(one.tokens for one in below), [one.cost_usd for one in below]
        lines.append(_cost(f"{len(below)} subagent{'s' * (len(below) > 1)}", tokens, costs))
        lines.append(_cost("together", own_tokens + tokens, [*costs, own.cost_usd]))
    return lines


def _all(run: RunInfo) -> list[RunInfo]:
    return [run, *(one for child in run.children for one in _all(child))]


def _cost(what: str, tokens: int, costs: Sequence[float | None]) -> str:
    known = [usd for usd in costs if usd is not None]
    return f"{what}: {tokens:,} tokens · " + (f"${sum(known):.4f}" if known else "price unknown")
