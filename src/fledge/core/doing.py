"""The current activity of a run in one line, or what it waits for: the answer to "why does it not move?"; and a tool
call in people's words.

It is read from the run's phase and from the open calls and questions of its session. This file knows no store; the
caller reads rows and gives it the facts. Arguments of a call are JSON that a model wrote: arguments that are no object,
or name a key twice, are shown as they stand, so that a person never allows something else than they saw. The caller
makes texts printable.
"""

import json
from typing import TYPE_CHECKING, Any, Final, Literal

from fledge.core.asking import retry_text
from fledge.core.figures import duration
from fledge.core.file_change import FileChange, change_lines, shown_by
from fledge.core.freeze import one_line
from fledge.core.run import (
    AnnounceDeferred,
    Announcing,
    Asking,
    AwaitingApproval,
    CompletedGiveup,
    Ending,
    Grace,
    Instant,
    Outcome,
    Queued,
    Retry,
    Run,
    Running,
    Spawning,
    Waiting,
)
from fledge.core.value import Value

if TYPE_CHECKING:  # a listing needs no turns
    from fledge.core.transcript import CallEntry
    from fledge.core.turn import Wait

# ---- a tool call in words --------------------------------------------------------------------------------------------

LINE_CHARS: Final = 160
SPEAKING: Final = ("command", "path", "url", "query", "pattern", "label", "task", "message")
"""Arguments that say most about a call, the first of them first."""
COMMAND: Final = ("exec", "command")
"""The tool whose call is a command line, and the argument that holds it: a person reads that as it would be typed."""


def call_line(tool: str, arguments: str) -> str:
    """The call on one short line: the tool, and the argument that says most."""
    given = _given(arguments)
    if given is None:
        return one_line(f"{tool} {arguments}", LINE_CHARS)
    texts = {name: value for name, value in given.items() if isinstance(value, str) and value.strip()}
    chosen = next((name for name in SPEAKING if name in texts), next(iter(texts), ""))
    return one_line(f"{tool} {texts.get(chosen, '')}", LINE_CHARS)


def whole_call_text(tool: str, arguments: str, change: FileChange | None = None) -> str:
    """The whole call: a command line as it would be typed, then every other argument on lines of its own. The change of
    a file stands there instead of the arguments that it shows."""
    given = _given(arguments)
    lines: list[str] = [tool if given is not None else f"{tool} {arguments}"]
    given = given or {}
    if tool == COMMAND[0] and isinstance(given.get(COMMAND[1]), str):
        lines = [given.pop(COMMAND[1])]
    shown = () if change is None else shown_by(change)
    lines += [line for name, value in given.items() if name not in shown for line in _argument(name, value)]
    return "\n".join([*lines, *(() if change is None else change_lines(change))])


def _argument(name: str, value: Any) -> list[str]:
    """An argument as lines. The lines of a text are marked, so that none of them passes for another argument."""
    named = one_line(name, LINE_CHARS)
    if isinstance(value, str) and ("\n" in value or "\r" in value):
        return [f"{named}:", *(f"| {line}" for line in value.splitlines())]
    return [f"{named}: {value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}"]


def _given(arguments: str) -> dict[str, Any] | None:
    """The arguments by name; None if they are no JSON object, or one that has a name twice."""
    try:
        read = json.loads(arguments or "{}", object_pairs_hook=_once)
    except (ValueError, RecursionError):
        return None
    return read if isinstance(read, dict) else None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    read = dict(pairs)
    if len(read) != len(pairs):
        raise ValueError("a name stands there twice")
    return read


# ---- what a run does -------------------------------------------------------------------------------------------------

DoingKind = Literal[
    "preparing", "queue", "retry", "undriven", "model", "tool", "stuck", "children", "you", "ending", "delivery", "lost"
]
REASON_CHARS: Final = 200
UNDRIVEN: Final = "no process drives this folder"
_MOVED_BY_A_DRIVER: Final = (Spawning, Queued, Running, Ending)
"""Phases that only go on while a process drives the folder, whatever else happens."""


class Doing(Value, kw_only=True):
    """The current activity of a run."""

    kind: DoingKind
    """`you`: a person must answer. `lost`: its result could not be delivered. `undriven`: no process is at work
    here."""
    text: str
    since_at: Instant | None = None
    until_at: Instant | None = None
    """When it ends by itself, at the latest."""


class DoingFacts(Value, kw_only=True):
    """Facts about a run besides its phase."""

    is_driven: bool
    """A process is at work in the folder."""
    spawned: int = 0
    unsettled: int = 0
    """Of its children."""
    ahead: int | None = None
    """How many are before it in its lane; None: it has no place there."""
    entered_at: Instant | None = None
    """When the run came into its phase."""
    calls: tuple["CallEntry", ...] = ()
    """Tool calls under way."""
    stepped_at: Instant | None = None
    """When it last committed a step."""
    is_stuck: bool = False
    asks: tuple[str, ...] = ()
    """The tools whose calls wait for a person."""
    asked_at: Instant | None = None
    asks_until: Instant | None = None


def doing(run: Run, facts: DoingFacts, now: Instant) -> Doing | None:
    """The present activity or wait of the run; None once nothing more will happen."""
    phase = run.phase
    if facts.asks:
        more = f" and {len(facts.asks) - 1} more" if len(facts.asks) > 1 else ""
        words = f"waits for your approval: {facts.asks[0]}{more}"
        return Doing(kind="you", text=words, since_at=facts.asked_at, until_at=facts.asks_until)
    if not facts.is_driven and isinstance(phase, _MOVED_BY_A_DRIVER):
        return Doing(kind="undriven", text=UNDRIVEN)
    match phase:
        case Spawning(due_at=due_at):
            return Doing(kind="preparing", text="being prepared", until_at=due_at)
        case Queued(retry=Retry(at=at, reason=reason)):
            text = retry_text(at, one_line(reason, REASON_CHARS), now)
            return Doing(kind="retry", text=text, since_at=facts.entered_at, until_at=at)
        case Queued(due_at=due_at):
            place = "next in its lane" if not facts.ahead else f"queued behind {facts.ahead}"
            return Doing(kind="queue", text=place, since_at=facts.entered_at, until_at=due_at)
        case Running():
            return _working(facts, now)
        case Waiting(until_settled=until, due_at=due_at):
            words = awaited_children(facts.spawned, facts.unsettled, until)
            return Doing(kind="children", text=words, since_at=facts.entered_at, until_at=due_at)
        case Asking(due_at=due_at):
            return Doing(kind="you", text="waits for your approval", since_at=facts.entered_at, until_at=due_at)
        case Ending(due_at=due_at, cause=Grace(error=error)):
            return Doing(kind="ending", text=f"may recover: {one_line(error, REASON_CHARS)}", until_at=due_at)
        case Ending(due_at=due_at):
            return Doing(kind="ending", text="stopping", until_at=due_at)
        case AwaitingApproval(due_at=due_at):
            words = "waits for your answer to its plan"
            return Doing(kind="you", text=words, since_at=facts.entered_at, until_at=due_at)
        case Announcing(ended=ended):
            return Doing(kind="delivery", text="its result is not read yet", since_at=ended.ended_at)
        case AnnounceDeferred(reason="missing-requester", since_at=since_at, due_at=due_at, tries=tries):
            text = "no requester is left to receive it"
            if tries:
                text += ", tried once" if tries == 1 else f", tried {tries} times"
            return Doing(kind="delivery", text=text, since_at=since_at, until_at=due_at)
        case CompletedGiveup(delivery=delivery, settled_at=settled_at):
            text = f"its result was not delivered: {one_line(delivery.error, REASON_CHARS)}"
            return Doing(kind="lost", text=text, since_at=settled_at)
        case _:
            words = awaited_children(facts.spawned, facts.unsettled, None)
            return Doing(kind="children", text=words) if facts.unsettled else None


def _working(facts: DoingFacts, now: Instant) -> Doing:
    line = call_line(facts.calls[0].name, facts.calls[0].arguments) if facts.calls else ""
    if len(facts.calls) > 1:
        line += f" and {len(facts.calls) - 1} more"
    if facts.is_stuck:
        silent_s = 0.0 if facts.stepped_at is None else max(0.0, now - facts.stepped_at)
        text = f"no step for {silent_s / 60:.0f} min: {line or 'the model'} has not answered"
        return Doing(kind="stuck", text=text, since_at=facts.stepped_at)
    return Doing(kind="tool" if line else "model", text=line or "thinking", since_at=facts.stepped_at)


def awaited_children(spawned: int, unsettled: int, until_settled: int | None) -> str:
    """How many of its children a session waits for, in words."""
    settled = spawned - unsettled
    missing = unsettled if until_settled is None else min(unsettled, max(0, until_settled - settled))
    return f"waits for {missing} of {spawned} {'child' if spawned == 1 else 'children'}"


def waits_for(wait: "Wait", spawned: int, unsettled: int, now: Instant) -> str:
    """The condition that a conversation waits for after a yield, and how much longer, in words."""
    text = awaited_children(spawned, unsettled, wait.until_settled)
    return text if wait.due_at is None else f"{text}, {duration(max(0.0, wait.due_at - now))} at most"


_WHY: Final = {"timeout": "its time was up", "unknown": "how it ended is not known"}
"""By status, where the outcome has no words of its own."""


def error_words(outcome: Outcome) -> str:
    """Why a run failed, for people; empty if it did not."""
    return outcome.error or _WHY.get(outcome.status, "")
