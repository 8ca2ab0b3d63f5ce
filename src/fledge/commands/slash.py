"""Slash commands as text: their list, how a line is read, and its completions. Nothing here carries one out.

A line is read into an `Order`, which `orders` carries out. A line that is no command is read as None, so that one that
begins with a path stays a message.
"""

import difflib
import re
from collections.abc import Mapping, Sequence
from typing import Final, Literal

from fledge.core.value import NamedValue, Value
from fledge.errors import BadInput
from fledge.models.base import LEVELS

Verb = Literal[
    "list",
    "kill",
    "resume",
    "again",
    "remove",
    "log",
    "info",
    "send",
    "steer",
    "spawn",
    "approve",
    "reject",
    "tree",
    "undelivered",
    "help",
    "stop",
    "status",
    "agents",
    "model",
    "compact",
    "focus",
    "unfocus",
    "approvals",
    "allow",
    "deny",
    "permissions",
    "event",
    "heartbeat",
    "reload",
    "image",
    "attach",
]

MOST_CHARS: Final = 100_000
LOG_LINES: Final = 20
LOG_MOST: Final = 200
DRY_RUN: Final = "--dry-run"
"""At the end of a kill command: only list the runs that would end."""

_COMMAND: Final = re.compile(r"/([a-zA-Z]+)(?:\s+(.*))?", re.DOTALL)
_QUOTED: Final = re.compile(r"""(["'])(.+?)\1(?:\s+(.*))?""", re.DOTALL)
_BUDGET: Final = re.compile(r"\s--budget[ =](\S+)\s*$")
_FLAG: Final = re.compile(r"\s--(model|thinking)[ =](\S+)\s*$")


class Order(NamedValue):
    """A slash command that was read: a verb and its arguments."""

    verb: Verb
    target: str = ""
    """The run, agent, model, question, rule or file that it is about, as the person wrote it."""
    words: str = ""
    """The message, the task or the reason; of `undelivered` and `permissions` the action, of `kill` and `allow` the
    option."""
    count: int = LOG_LINES
    tools: bool = False
    model: str = ""
    thinking: str = ""
    budget: str = ""


class SlashUsage(Value):
    """One form of a command, for help and completion."""

    verb: Verb
    form: str
    meaning: str


SUBAGENTS: Final = (
    SlashUsage("list", "/subagents list", "the subagents of this conversation"),
    SlashUsage("info", "/subagents info <id|#>", "one run with its timeline"),
    SlashUsage("log", "/subagents log <id|#> [n] [tools]", "the end of its transcript"),
    SlashUsage("tree", "/subagents tree", "everything below this conversation"),
    SlashUsage("send", "/subagents send <id|#> <message>", "send it a message without stopping it"),
    SlashUsage("steer", "/subagents steer <id|#> <message>", "stop it and give it new instructions"),
    SlashUsage(
        "kill",
        "/subagents kill <id|#|all>",
        "end it and everything below it (also: stop); --dry-run only lists",
    ),
    SlashUsage(
        "resume",
        "/subagents resume <id|#> [words] [--budget b]",
        "let one continue that was killed, failed or timed out",
    ),
    SlashUsage("again", "/subagents again <id|#>", "start a new one with the same task and options"),
    SlashUsage("remove", "/subagents remove <id|#>", "take a finished one off the list"),
    SlashUsage("spawn", "/subagents spawn <agent> <task> [--model m] [--thinking t]", "start one"),
    SlashUsage("approve", "/subagents approve <id|#> [words]", "approve its plan"),
    SlashUsage("reject", "/subagents reject <id|#> <reason>", "reject its plan, so that it plans again"),
    SlashUsage("undelivered", "/subagents undelivered [retry|dismiss <id>]", "undelivered results and messages"),
    SlashUsage("agents", "/subagents agents", "as /agents"),
    SlashUsage("focus", "/subagents focus <id|#>", "as /focus"),
    SlashUsage("unfocus", "/subagents unfocus", "as /unfocus"),
    SlashUsage("help", "/subagents help", "this list"),
)
"""The commands that begin with `/subagents`."""
ALONE: Final = (
    SlashUsage("kill", "/kill <id|#|all>", "as /subagents kill"),
    SlashUsage("steer", "/steer <id|#> <message>", "as /subagents steer"),
    SlashUsage("send", "/tell <id|#> <message>", "as /subagents send"),
    SlashUsage("stop", "/stop", "stop this conversation's turn and everything below it"),
    SlashUsage("status", "/status [id|#]", "model, tokens, cost, queue and subagents"),
    SlashUsage("agents", "/agents", "agents you can start, and subagents bound to a thread"),
    SlashUsage("model", "/model [name|default]", "show or set the model of this conversation"),
    SlashUsage("compact", "/compact [words]", "summarise the conversation and continue from the summary"),
    SlashUsage("focus", "/focus <id|#>", "bind this thread to a subagent"),
    SlashUsage("unfocus", "/unfocus", "end that binding"),
    SlashUsage("approvals", "/approvals", "tool calls that wait for you"),
    SlashUsage("allow", "/allow [id] [always [children]]", "allow a tool call; always: also such commands from now on"),
    SlashUsage("deny", "/deny [id] [words]", "deny a tool call, with a reason for the model"),
    SlashUsage("permissions", "/permissions [revoke <id>]", "commands you have allowed for good"),
    SlashUsage("event", "/event <text>", "tell this conversation that something happened"),
    SlashUsage("heartbeat", "/heartbeat [reason]", "let this conversation check its duties"),
    SlashUsage("reload", "/reload", "accept documents of the workspace that changed while an agent worked"),
    SlashUsage("image", "/image <file> [words]", "send an image, from a terminal"),
    SlashUsage("attach", "/attach <file> [words]", "send a file for the model to read, from a terminal"),
    SlashUsage("help", "/help", "this list"),
)
"""The commands that have a name of their own."""


USAGES: Final = (*SUBAGENTS, *ALONE)
"""Every command."""
WordChoice = tuple[str, str]
"""A word, and what it means."""
_ACTIONS_OF: Final[Mapping[str, Sequence[WordChoice]]] = {
    "undelivered": (("retry", "offer it again"), ("dismiss", "take it off the list")),
    "permissions": (("revoke", "let such commands ask again"),),
}
"""By verb: the actions on the items that it lists."""


def parted(form: str) -> tuple[str, str]:
    """The name of a command and its arguments, out of the form in which people write it."""
    at = min((place for sign in "<[" if (place := form.find(sign)) >= 0), default=len(form))
    return form[:at].rstrip(), form[at:]


_BY_NAME: Final = {
    parted(usage.form)[0][1:]: usage
    for usage in (*USAGES, SlashUsage("kill", "/subagents stop <id|#|all>", "as /subagents kill"))
}


# ---- reading ---------------------------------------------------------------------------------------------------------


def is_command(line: str) -> bool:
    """True of a line that begins with a slash and a word; a path does not."""
    return _COMMAND.fullmatch(line.strip()) is not None


def read(line: str) -> Order | None:
    """The order that a line gives; None if it is no command. Refused: an unknown command, and one that lacks a part."""
    found = _COMMAND.fullmatch(line.strip())
    if found is None:
        return None
    if len(line) > MOST_CHARS:
        raise BadInput("command", f"must be at most {MOST_CHARS} characters", len(line))
    name, rest = found[1].lower(), (found[2] or "").strip()
    if name == "subagents":
        action, rest = _first(rest)
        name = f"subagents {action.lower() or 'list'}"
    return _order(_known(name), rest)


def read_file_order(line: str) -> Order | None:
    """The order of a line that shows an image or attaches a file; None of any other line. Refused: no file is named."""
    found = _COMMAND.fullmatch(line.strip())
    return read(line) if found is not None and found[1].lower() in ("image", "attach") else None


def _known(name: str) -> SlashUsage:
    if name not in _BY_NAME:
        said = f"/{name}"
        alike = [f"/{known}" for known in _BY_NAME if (" " in known) == (" " in name)]
        near = difflib.get_close_matches(said, ["/subagents", *alike], n=1)
        if f"subagents {name}" in _BY_NAME:
            near = [f"/subagents {name}"]
        hint = f"perhaps {near[0]}; " if near else ""
        raise BadInput(said[:80], f"there is no such command: {hint}/help lists them")
    return _BY_NAME[name]


def _first(rest: str) -> tuple[str, str]:
    """The first word, and the rest."""
    first, _, more = rest.strip().partition(" ")
    head, newline, below = first.partition("\n")
    return (head, f"{below} {more}".strip()) if newline else (first, more.strip())


def _order(said: SlashUsage, rest: str) -> Order:
    verb = said.verb
    match verb:
        case "list" | "tree" | "help" | "stop" | "agents" | "unfocus" | "approvals" | "reload":
            return Order(verb=verb)
        case "kill" if rest.rstrip().endswith(f" {DRY_RUN}"):
            return Order(verb=verb, target=_unquoted(rest.rstrip().removesuffix(DRY_RUN)), words=DRY_RUN)
        case "kill" | "again" | "remove" | "info" | "focus" | "status" | "model":
            return _checked(Order(verb=verb, target=_unquoted(rest)), said)
        case "event" | "heartbeat" | "compact":
            return _checked(Order(verb=verb, words=rest), said)
        case "log":
            return _checked(_log(rest, said), said)
        case "spawn":
            return _checked(_spawn(rest), said)
        case "allow":
            return _allow(rest, said)
        case "resume":
            found = _BUDGET.search(rest)
            target, words = _split(rest if found is None else rest[: found.start()])
            return _checked(Order(verb=verb, target=target, words=words, budget=found[1] if found else ""), said)
        case "undelivered" | "permissions":
            action, name = _first(rest)
            order = Order(verb=verb, words=action, target=_unquoted(name))
            if action and (action not in dict(_ACTIONS_OF[verb]) or not order.target):
                raise _misused(said)
            return order
        case _:
            target, words = _split(rest)
            return _checked(Order(verb=verb, target=target, words=words), said)


def _checked(order: Order, said: SlashUsage) -> Order:
    """The order, if it has as many parts as the form has in `<>`; its target is read before its words."""
    if bool(order.target) + bool(order.words) < said.form.count("<"):
        raise _misused(said)
    return order


def _misused(said: SlashUsage) -> BadInput:
    return BadInput(parted(said.form)[0], f"write it like this: {said.form}")


def _split(rest: str) -> tuple[str, str]:
    """The first word, or the text in quotation marks, and the rest."""
    quoted = _QUOTED.fullmatch(rest)
    if quoted is not None:
        return quoted[2], (quoted[3] or "").strip()
    return _first(rest)


def _unquoted(rest: str) -> str:
    quoted = _QUOTED.fullmatch(rest.strip())
    return quoted[2] if quoted is not None and not quoted[3] else rest.strip()


def _allow(rest: str, said: SlashUsage) -> Order:
    """`always`, and `children` behind it, may follow the id, or stand alone where one question waits."""
    target, words = _split(rest)
    if target == "always":
        target, words = "", rest
    words = " ".join(words.split())
    if words not in ("", "always", "always children"):
        raise _misused(said)
    return Order(verb="allow", target=target, words=words)


def _log(rest: str, said: SlashUsage) -> Order:
    words = rest.split()
    tools = len(words) > 1 and words[-1].lower() == "tools"
    words = words[:-1] if tools else words
    count = LOG_LINES
    if len(words) > 1 and words[-1].isdecimal():
        count = int(words.pop())
        if not 1 <= count <= LOG_MOST:
            raise BadInput(parted(said.form)[0], f"n must be 1 to {LOG_MOST}", count)
    return Order(verb="log", target=_unquoted(" ".join(words)), count=count, tools=tools)


def _spawn(rest: str) -> Order:
    flags: dict[str, str] = {}
    while found := _FLAG.search(rest):
        flags.setdefault(found[1], found[2])
        rest = rest[: found.start()]
    if flags.get("thinking", "off") not in LEVELS:
        raise BadInput("--thinking", f"must be one of {', '.join(LEVELS)}", flags["thinking"])
    agent, task = _split(rest)
    return Order(
        verb="spawn", target=agent, words=task, model=flags.get("model", ""), thinking=flags.get("thinking", "")
    )


# ---- help and completion ---------------------------------------------------------------------------------------------


def help_text() -> str:
    """Every command, as it is written, with its meaning."""
    width = max(len(usage.form) for usage in USAGES if len(usage.form) < 44)
    return "\n".join(f"{usage.form:<{width}}  {usage.meaning}" for usage in USAGES)


def complete(line: str, targets: Sequence[WordChoice] = ()) -> list[WordChoice]:
    """The completions of the last word of a line, each with its meaning: commands, actions and, where the command takes
    one, targets."""
    if not line.startswith("/") or "\n" in line:
        return []
    *before, last = line.split(" ")
    if not before:
        return fitting(last, [("/subagents", "subagents: see /help"), *_choices(ALONE)])
    name = " ".join(before)[1:].lower()
    if name == "subagents":
        return fitting(last, _choices(SUBAGENTS))
    said = _BY_NAME.get(name)
    if said is None:
        return []
    everybody = [("all", "all of them")] if "|all" in said.form else []
    return fitting(
        last, [*_ACTIONS_OF.get(said.verb, ()), *(quoted(targets) if "id|#" in said.form else ()), *everybody]
    )


def _choices(usages: Sequence[SlashUsage]) -> list[WordChoice]:
    """The last word of each command's name."""
    return [(parted(usage.form)[0].split()[-1], usage.meaning) for usage in usages]


def quoted(targets: Sequence[WordChoice]) -> list[WordChoice]:
    """The same words, those with blanks in quotation marks."""
    return [(f'"{name}"' if " " in name else name, meaning) for name, meaning in targets]


def fitting(begun: str, choices: Sequence[WordChoice]) -> list[WordChoice]:
    """The choices that begin with the text typed so far."""
    return [choice for choice in choices if choice[0].strip('"').casefold().startswith(begun.strip('"').casefold())]
