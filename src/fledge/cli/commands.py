"""Slash commands: what a person can do from a conversation, the same in chat, gateway and page.

`parse` reads a line, `run_command` does it. The person is the bound user: nothing here goes through a model, and what a
model says never comes here. A target is a number of the list, `last`, a label or its beginning, a run id or its
beginning, or a session key. This file knows no edge.
"""

import shlex
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, TypeVar

from msgspec import Struct

from fledge.api.conversation import Conversation
from fledge.api.program import Fledge
from fledge.cli.render import info_lines, log_lines, tree_lines, undelivered_lines
from fledge.core.freeze import one_line
from fledge.core.prompts import list_text
from fledge.core.run import Instant
from fledge.errors import BadInput, FledgeError, NotFound
from fledge.orchestrator import control, steps, views
from fledge.orchestrator.asked import Caller, SpawnParams
from fledge.orchestrator.commit import Commit
from fledge.store.base import Tx
from fledge.tools.observe import spawnable

T = TypeVar("T")
BOUND_USER: Final = "user"
ANSWER_S: Final = 30.0
"""How long the answer to a message is waited for."""
LOG_ENTRIES: Final = 20
MOST_LINE: Final = 100_000


class CommandResult(Struct, frozen=True):
    """What came of a command, in words; `ok` is false if it was refused or makes no sense."""

    text: str
    ok: bool = True


class Verb(Struct, frozen=True):
    """One command: what it is called with, and what it does."""

    usage: str
    meaning: str
    target: bool = False
    """Its first word names a subagent."""
    rest: str = ""
    """What follows must not be empty; this is what it is."""


SUBAGENTS: Final[Mapping[str, Verb]] = {
    "list": Verb("", "the subagents of this conversation"),
    "tree": Verb("", "all of them, and theirs"),
    "info": Verb("<id|#>", "one in full, with its timeline", target=True),
    "log": Verb("<id|#> [n] [tools]", "the newest of its transcript", target=True),
    "send": Verb("<id|#> <message>", "tell it something without stopping it", target=True, rest="message"),
    "steer": Verb("<id|#> <message>", "stop it and redirect it", target=True, rest="message"),
    "kill": Verb("<id|#|all>", "end it and everything below it, silently", target=True),
    "approve": Verb("<id|#> [words]", "let its plan be carried out", target=True),
    "reject": Verb("<id|#> <reason>", "let it plan again", target=True, rest="reason"),
    "spawn": Verb("<agent> <task>", "start one; its answer arrives here", rest="task"),
    "undelivered": Verb("[retry|dismiss <id>]", "results that found nobody"),
    "help": Verb("", "these lines"),
}
PLAIN: Final[Mapping[str, Verb]] = {
    "subagents": Verb("<command>", "see /subagents help"),
    "kill": Verb("<id|#|all>", "as /subagents kill", target=True),
    "steer": Verb("<id|#> <message>", "as /subagents steer", target=True, rest="message"),
    "tell": Verb("<id|#> <message>", "as /subagents send", target=True, rest="message"),
    "stop": Verb("", "stop this conversation's turn and everything below it"),
    "status": Verb("", "how this conversation stands"),
    "agents": Verb("", "agents that can be spawned"),
    "approvals": Verb("", "tool calls that wait for you"),
    "allow": Verb("<id>", "let such a call be run"),
    "deny": Verb("<id>", "do not let it be run"),
    "focus": Verb("<id|#>", "let this thread talk to a subagent", target=True),
    "unfocus": Verb("", "let this thread talk to the main agent again"),
    "help": Verb("", "these lines"),
}
_ALIASES: Final = {("subagents", "stop"): "kill", ("subagents", ""): "list"}


class Command(Struct, frozen=True):
    """A line that was read."""

    name: str
    """As in `PLAIN`, or `subagents <verb>` as in `SUBAGENTS`."""
    target: str = ""
    rest: str = ""


def parse(line: str) -> Command:
    """What a line asks for. Refused, naming what would be right: an unknown command, a missing word."""
    if len(line) > MOST_LINE:
        raise BadInput("command", f"must be at most {MOST_LINE} characters", len(line))
    head, rest = _word(line.strip().removeprefix("/"))
    name = head.lower()
    if name not in PLAIN:
        raise BadInput("command", f"unknown; {_nearest(name, PLAIN)}", f"/{one_line(head, 40)}")
    verb = PLAIN[name]
    if name == "subagents":
        head, rest = _word(rest)
        word = _ALIASES.get(("subagents", head.lower()), head.lower())
        if word not in SUBAGENTS:
            raise BadInput("command", f"unknown; {_nearest(word, SUBAGENTS)}", f"/subagents {one_line(head, 40)}")
        name, verb = f"subagents {word}", SUBAGENTS[word]
    target = ""
    if verb.target:
        target, rest = _word(rest)
        if not target:
            raise BadInput("target", f"must be named: /{name} {verb.usage}")
    if name == "subagents spawn":
        target, rest = _word(rest)
    if verb.rest and not rest.strip():
        raise BadInput(verb.rest, f"must not be empty: /{name} {verb.usage}")
    return Command(name, target, rest.strip())


def _word(text: str) -> tuple[str, str]:
    """The first word, which may be quoted, and what follows."""
    text = text.lstrip()
    if text[:1] in ('"', "'"):
        end = text.find(text[0], 1)
        if end > 0:
            return text[1:end], text[end + 1 :]
    first, _, rest = text.partition(" ")
    head, newline, more = first.partition("\n")
    return (head, more + " " + rest) if newline else (first, rest)


def _nearest(word: str, known: Mapping[str, Verb]) -> str:
    from difflib import get_close_matches

    near = get_close_matches(word, known, 1)
    return f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"


# ---- doing -----------------------------------------------------------------------------------------------------------


async def run_command(fl: Fledge, session: str, line: str) -> CommandResult:
    """Do what the line says, for the user of this conversation. Whatever is wrong with it is told, not raised."""
    try:
        command = parse(line)
        return CommandResult(await _DEEDS[command.name](fl, session, command))
    except FledgeError as error:
        return CommandResult(str(error), ok=False)


async def _list(fl: Fledge, session: str, command: Command) -> str:
    now = fl.engine.clock.now()
    return await fl.engine.store.read(lambda tx: list_text(views.child_rows(tx, session), now))


async def _tree(fl: Fledge, session: str, command: Command) -> str:
    now = fl.engine.clock.now()
    lines = await fl.engine.store.read(lambda tx: tree_lines(tx, session, now))
    return "\n".join(lines) or "no subagents"


async def _info(fl: Fledge, session: str, command: Command) -> str:
    return "\n".join(await fl.engine.store.read(lambda tx: info_lines(tx, _find(tx, session, command))))


async def _log(fl: Fledge, session: str, command: Command) -> str:
    words = command.rest.lower().split()
    numbers = [word for word in words if word.isdecimal()]
    unknown = [word for word in words if not word.isdecimal() and word != "tools"]
    if unknown or len(numbers) > 1:
        raise BadInput("log", "takes a number of entries and the word tools", command.rest)
    last = int(numbers[0][:6]) if numbers else LOG_ENTRIES
    if not last:
        raise BadInput("n", "must be 1 or more", last)
    tools = "tools" in words
    return "\n".join(await fl.engine.store.read(lambda tx: log_lines(tx, _find(tx, session, command), last, tools)))


async def _send(fl: Fledge, session: str, command: Command) -> str:
    key = await fl.engine.store.read(lambda tx: _find(tx, session, command))
    talk: Conversation = fl.session(key)
    ended = await fl.engine.store.read(lambda tx: tx.load_run(key).ended is not None)
    if not ended:
        await talk.post(command.rest)
        return "sent: it reads it at its next step"
    reply = await talk.send(command.rest, timeout=ANSWER_S)
    match reply.status:
        case "ok":
            return reply.text or "(it had nothing to say)"
        case "pending":
            return f"sent; no answer within {ANSWER_S:.0f} s"
        case _:
            return f"{reply.status}: {reply.error}"


async def _steer(fl: Fledge, session: str, command: Command) -> str:
    run = await fl.engine.commit(lambda c: control.steer(c, _find(c.tx, session, command), command.rest))
    return f"steered: attempt {run.attempt}, run {run.run_id[:8]}"


async def _kill(fl: Fledge, session: str, command: Command) -> str:
    if command.target.casefold() in ("all", "*"):
        done = await fl.engine.commit(lambda c: control.kill_below(c, session))
        if not done.killed and not done.stopping:
            return "nothing is running"
    else:
        done = await fl.engine.commit(lambda c: control.kill(c, _find(c.tx, session, command)))
    return _killed(done)


def _killed(done: control.Killing) -> str:
    words = f"killed {len(done.killed)}"
    if done.stopping:
        words += f"; stopping, up to 5 s: {', '.join(done.stopping)}"
    return words


async def _approve(fl: Fledge, session: str, command: Command) -> str:
    words = command.rest or "APPROVED: proceed"
    run = await fl.engine.commit(lambda c: control.answer_plan(c, _find(c.tx, session, command), True, words))
    return f"approved: it carries the plan out now, run {run.run_id[:8]}"


async def _reject(fl: Fledge, session: str, command: Command) -> str:
    run = await fl.engine.commit(lambda c: control.answer_plan(c, _find(c.tx, session, command), False, command.rest))
    return f"rejected: it plans again, run {run.run_id[:8]}"


async def _spawn(fl: Fledge, session: str, command: Command) -> str:
    label = one_line(command.rest, 40)
    params = SpawnParams(task=command.rest, label=label, agent_id=command.target)
    spawned = await fl.spawner.spawn(params, Caller(session=session))
    return f"accepted: {spawned.run.key}, run {spawned.run.run_id[:8]}; its answer arrives here"


async def _undelivered(fl: Fledge, session: str, command: Command) -> str:
    words = shlex.split(command.rest) if command.rest.count('"') % 2 == 0 else command.rest.split()
    if not words:
        return "\n".join(await fl.engine.store.read(undelivered_lines))
    if words[0] not in ("retry", "dismiss") or len(words) != 2:
        raise BadInput("undelivered", "takes retry or dismiss, and which", command.rest)
    act, target = (control.retry if words[0] == "retry" else control.dismiss), words[1]

    def decide(c: Commit) -> str:
        return act(c, _undelivered_run(c.tx, session, target)).key

    key = await fl.engine.commit(decide)
    return f"{key} is {'announced again' if words[0] == 'retry' else 'dismissed'}"


def _undelivered_run(tx: Tx, session: str, word: str) -> str:
    """Of all that is undelivered, whoever it was for; else of this conversation's."""
    found = {row.source for row in tx.undelivered() if row.source and row.source.endswith(word)}
    return found.pop() or "" if len(found) == 1 else views.find_run(tx, session, word)


async def _stop(fl: Fledge, session: str, command: Command) -> str:
    done = await fl.engine.commit(lambda c: control.stop(c, session))
    return f"stopped; {_killed(done)}" if done.killed or done.stopping else "stopped"


async def _status(fl: Fledge, session: str, command: Command) -> str:
    mode = fl.engine.rules.queue.mode
    seen = await fl.engine.store.read(lambda tx: views.session_status(tx, session, mode))
    lines = [f"{seen.session_key} · {seen.state}" + (f" · {seen.unread} unread" if seen.unread else "")]
    if seen.model:
        used = "" if seen.context_tokens is None else f" · context {seen.context_tokens} tokens"
        lines.append(f"model {seen.model}{used}")
    if seen.tokens_in is not None:
        cost = "" if seen.cost_usd is None else f" · est ${seen.cost_usd:.4f}"
        lines.append(f"tokens {seen.tokens_in} in, {seen.tokens_out} out{cost}")
    lines.append(f"subagents: {seen.children_active} active, {seen.children_done} done · queue {seen.queue_mode}")
    lines += [steps.question(asked) for asked in await fl.engine.store.read(lambda tx: tx.open_approvals())]
    return "\n".join(lines)


async def _agents(fl: Fledge, session: str, command: Command) -> str:
    known = await fl.engine.store.read(lambda tx: tx.session(session))
    own = "main" if known is None else known.facts.agent_id
    seen = spawnable(fl.config, own)
    return "\n".join(
        f"{one.id}{' · ' + one.model if one.model else ''}{' · ' + one.description if one.description else ''}"
        for one in seen
    )


async def _approvals(fl: Fledge, session: str, command: Command) -> str:
    asked = await fl.engine.store.read(lambda tx: tx.open_approvals())
    return "\n".join(steps.question(one) for one in asked) or "nothing waits for you"


async def _allow(fl: Fledge, session: str, command: Command) -> str:
    return await _answer(fl, command, True)


async def _deny(fl: Fledge, session: str, command: Command) -> str:
    return await _answer(fl, command, False)


async def _answer(fl: Fledge, command: Command, allow: bool) -> str:
    def decide(c: Commit) -> str:
        asked = c.tx.open_approvals()
        found = [one for one in asked if command.rest and one.id.startswith(command.rest)]
        if not command.rest and len(asked) == 1:
            found = asked
        if len(found) != 1:
            why = "ambiguous" if found else "not among those that wait: /approvals lists them"
            raise NotFound(f"{command.rest or 'the question'} is {why}")
        steps.answer(c, found[0].id, allow, BOUND_USER, found[0].digest)
        return found[0].tool

    tool = await fl.engine.commit(decide)
    return f"{tool} {'may be run, this once' if allow else 'is not run; the model is told so'}"


async def _focus(fl: Fledge, session: str, command: Command) -> str:
    raise NotFound("this conversation is not bound to a thread of a channel: there is nothing to focus")


async def _help(fl: Fledge, session: str, command: Command) -> str:
    return help_text(SUBAGENTS, "/subagents ") if command.name == "subagents help" else help_text(PLAIN, "/")


def help_text(known: Mapping[str, Verb], prefix: str) -> str:
    """What there is, a line each."""
    lines = [(f"{prefix}{name} {verb.usage}".rstrip(), verb.meaning) for name, verb in known.items()]
    width = max(len(usage) for usage, _ in lines)
    return "\n".join(f"{usage:<{width}}  {meaning}" for usage, meaning in lines)


def _find(tx: Tx, session: str, command: Command) -> str:
    return views.find_run(tx, session, command.target)


Deed = Callable[[Fledge, str, Command], Awaitable[str]]
_DEEDS: Final[Mapping[str, Deed]] = {
    "subagents list": _list,
    "subagents tree": _tree,
    "subagents info": _info,
    "subagents log": _log,
    "subagents send": _send,
    "subagents steer": _steer,
    "subagents kill": _kill,
    "subagents approve": _approve,
    "subagents reject": _reject,
    "subagents spawn": _spawn,
    "subagents undelivered": _undelivered,
    "subagents help": _help,
    "kill": _kill,
    "steer": _steer,
    "tell": _send,
    "stop": _stop,
    "status": _status,
    "agents": _agents,
    "approvals": _approvals,
    "allow": _allow,
    "deny": _deny,
    "focus": _focus,
    "unfocus": _focus,
    "help": _help,
}


# ---- for whoever shows them ------------------------------------------------------------------------------------------


def complete(text: str) -> list[tuple[str, str]]:
    """What the last word of a line may become, with its meaning; nothing where that is free text."""
    *before, last = text.split(" ")
    if not text.startswith("/") or "\n" in text:
        return []
    match [word.lower() for word in before if word]:
        case []:
            known: Mapping[str, str] = {f"/{name}": verb.meaning for name, verb in PLAIN.items()}
        case ["/subagents"]:
            known = {name: verb.meaning for name, verb in SUBAGENTS.items()}
        case ["/subagents", "undelivered"]:
            known = {"retry": "announce it again", "dismiss": "take it off the list"}
        case _:
            return []
    return [(word, meaning) for word, meaning in known.items() if word.startswith(last.lower())]


def status_line(tx: Tx, session: str, now: Instant) -> str:
    """What goes on below a conversation, in one line; empty if nothing does."""
    rows = [row for row in views.child_rows(tx, session) if row.is_active]
    shown = [f"{one_line(row.label or row.key[-8:], 24)} {row.status_text}" for row in rows[:4]]
    more = [f"and {len(rows) - 4} more"] if len(rows) > 4 else []
    asked = len(tx.open_approvals())
    waits = [f"{asked} {'question waits' if asked == 1 else 'questions wait'} for you"] if asked else []
    return "  ·  ".join([*shown, *more, *waits])
