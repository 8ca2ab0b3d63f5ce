"""The stories that are crashed everywhere, as data: what models say, what people do, how it must end."""

from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

import msgspec

from fledge.channels.inbound import heard
from fledge.core.inbox import QueueMode, QueueSettings
from fledge.core.policy import Limits
from fledge.core.route import Address, ChannelMessage
from fledge.core.run import Run
from fledge.core.transcript import Replied, Spoken, Told, from_body
from fledge.core.turn import REPLIED
from fledge.models.base import AssistantMessage, Broke, Request, ToolMessage, UserMessage
from fledge.models.scripted import Answer, ScriptedReply, use
from fledge.orchestrator import control, messages, spawn, steps
from fledge.orchestrator.commit import Commit, Rules
from fledge.runtime import context
from fledge.store.base import Tx
from tests.crash.players import RUNTIME, TALKING, Mind, Story, notes
from tests.crash.worktree_story import LABELS, faults, spawned
from tests.sim.people import BOB, MAIN, OTHER, walk


def said(*answers: Answer) -> Mind:
    """The first answer to a transcript without replies, the next to one with a single reply, and so on."""

    def mind(request: Request) -> Answer:
        replies = sum(isinstance(message, AssistantMessage) for message in request.messages)
        return answers[min(replies, len(answers) - 1)]

    return mind


def calls(*made: Answer) -> ScriptedReply:
    """A reply that does nothing but call tools."""
    return ScriptedReply("", tuple(made))  # type: ignore[arg-type]


def child(label: str, **terms: object) -> Answer:
    """A call that spawns."""
    return use("sessions_spawn", task=f"do {label}", label=label, **terms)


def host(*made: Answer) -> Mind:
    """A conversation that spawns when told to, says that it is under way, and takes in the rest without a word."""

    def mind(request: Request) -> Answer:
        last = request.messages[-1]
        if last.text == "go":
            return calls(*made)
        return "It is under way." if isinstance(last, ToolMessage) else "NO_REPLY"

    return mind


def works(label: str) -> Mind:
    """One tool call, then the answer."""
    return said(calls(use("look")), f"SUMMARY: {label} is done")


def down_for(times: int, mind: Mind) -> Mind:
    """A model whose provider is down for the first requests that a process makes."""
    left = [times]

    def down(request: Request) -> Answer:
        left[0] -= 1
        return mind(request) if left[0] < 0 else Broke("retryable", "HTTP 503: down")

    return down


def speak(session: str = MAIN) -> Callable[[Commit], object]:
    """Somebody says go, once."""
    return partial(control.send, key=session, message="go", row_key=f"go:{session}")


def rules(mode: QueueMode = "collect", width: int = 8) -> Rules:
    return Rules(queue=QueueSettings(mode=mode, people=mode), widths={"main": 4, "subagent": width, "nested": 1})


def runs(tx: Tx) -> dict[str, Run]:
    """All runs by label."""
    return {tx.runs.spec(key).label: tx.runs.load(key) for key in walk(tx)}


# ---- what people do --------------------------------------------------------------------------------------------------


def steer_once(tx: Tx, at: float) -> list[Callable[[Commit], object]]:
    run = runs(tx).get("w")
    if run is None or run.attempt > 1 or run.ended is not None or not _ran(run, 2.2, at):
        return []
    return [partial(control.steer, key=run.key, message="rather this")]


def kill_it(tx: Tx, at: float) -> list[Callable[[Commit], object]]:
    run = runs(tx).get("parent")
    if run is None or run.ended is not None or not _ran(run, 2.2, at):
        return []
    return [partial(control.kill, key=run.key)]


def _ran(run: Run, seconds: float, at: float) -> bool:
    return run.started_at is not None and at >= run.started_at + seconds


def answer_plans(tx: Tx, at: float) -> list[Callable[[Commit], object]]:
    """The first plan of `again` is rejected, every other is approved."""
    wishes: list[Callable[[Commit], object]] = []
    for label, run in runs(tx).items():
        if run.phase.name == "awaiting_approval":
            approve = label != "again" or run.attempt > 1
            words = "APPROVED: proceed" if approve else "REJECTED: think again"
            wishes.append(partial(control.answer_plan, key=run.key, approve=approve, words=words))
    return wishes


def lose_and_find(tx: Tx, at: float) -> list[Callable[[Commit], object]]:
    """The requester is deleted while its child works; once its result is given up, it is there again and wants it."""
    run, other = runs(tx).get("orphan"), tx.sessions.get(OTHER)
    if run is None or other is None:
        return []
    if run.phase.name == "completed_giveup":
        return [partial(spawn.open_conversation, key=OTHER), partial(control.retry, key=run.key)]
    return [partial(control.delete_session, key=OTHER)] if run.ended is None and not other.deleted else []


def begin_other(c: Commit) -> None:
    """Only while nobody has said it: a deleted conversation stays deleted."""
    if c.tx.inbox.get(f"go:{OTHER}") is None:
        control.send(c, OTHER, "go", row_key=f"go:{OTHER}")


# ---- what must be heard outside --------------------------------------------------------------------------------------

ANN, THREAD = Address("ops", "ann"), Address("ops", "ann", "t-9")


def mute(*made: Answer) -> Mind:
    """A conversation that spawns when told to, says that it is under way, and has no words for anything else."""

    def mind(request: Request) -> Answer:
        last = request.messages[-1]
        if last.text == "go":
            return calls(*made)
        return "It is under way." if isinstance(last, ToolMessage) else ""

    return mind


def heard_outside(tx: Tx, folder: Path) -> list[str]:
    """What is wrong with what people heard: the last words in the thread, and results in the subagents' own words, each
    once; the conversation was asked for words once for every turn that had none."""
    sent = {
        line["key"]: msgspec.json.decode(line["body"], type=ChannelMessage) for line in notes(folder) if "key" in line
    }
    wrong: list[str] = []
    finals = [(message.address, message.text) for key, message in sent.items() if key.startswith("final:")]
    if finals != [(THREAD, "SUMMARY: w is done")]:
        wrong.append(f"in the thread: {finals}")
    forwards = [message.text for key, message in sent.items() if key.startswith("forward:")]
    told = Counter(label for text in forwards for label in ("w", "v") if f"> SUMMARY: {label} is done" in text)
    if told != {"w": 1, "v": 1}:
        wrong.append(f"handed on: {forwards}")
    bodies = [from_body(entry.body) for entry in tx.transcripts.entries(MAIN)]
    nudges = [body.row for body in bodies if isinstance(body, Spoken) and body.kind == "nudge"]
    if len(nudges) != len(forwards) or len(set(nudges)) != len(nudges):
        wrong.append(f"asked for words by {nudges}")
    kept = [body.text for body in bodies if isinstance(body, Replied) and body.text in forwards]
    return wrong if sorted(kept) == sorted(forwards) else [*wrong, f"in the transcript: {kept}"]


def asked_for(c: Commit) -> None:
    """Somebody says go, once, and waits for the answer by name."""
    messages.accept_request(c, MAIN, "go", key="the request")


def answered_in_the_end(tx: Tx, folder: Path) -> list[str]:
    """What is wrong with a request whose turn yielded: it is answered by the turn that read the result."""
    known = tx.asks.find("", "the request")
    asked = None if known is None else tx.requests.get(known.answer)
    bodies = {entry.seq: from_body(entry.body) for entry in tx.transcripts.entries(MAIN)}
    told = [seq for seq, body in bodies.items() if isinstance(body, Told)]
    if asked is None or asked.ended != REPLIED:
        return [f"the request: {asked}"]
    answer = bodies.get(asked.entry)
    if not isinstance(answer, Replied) or answer.text != "It is done." or asked.entry < max(told):
        return [f"answered by {answer}"]
    return []


def in_one_piece(tx: Tx, folder: Path) -> list[str]:
    """What is wrong with a result whose reply was cut: both parts are there, each once."""
    ended = runs(tx)["w"].ended
    text = None if ended is None or ended.result is None else tx.texts.get(ended.result)
    return [] if text == "SUMMARY: w is done" else [f"the result: {text}"]


def send_once(tx: Tx, at: float) -> list[Callable[[Commit], object]]:
    run = runs(tx).get("w3")
    if run is None or run.ended is not None or tx.inbox.get("by the way") is not None or not _ran(run, 2.2, at):
        return []
    return [partial(control.send, key=run.key, message="by the way", row_key="by the way")]


def kill_both(tx: Tx, at: float) -> list[Callable[[Commit], object]]:
    """Kill a parent while its child is there."""
    return kill_it(tx, at) if "below" in runs(tx) else []


def kill_and_resume(tx: Tx, at: float) -> list[Callable[[Commit], object]]:
    """Kill a run in the middle of a call, and let it go on."""
    run = runs(tx).get("back")
    if run is None or run.attempt > 1:
        return []
    if run.ended is None:
        return [partial(control.kill, key=run.key)] if _ran(run, 2.2, at) else []
    return [partial(spawn.resume, key=run.key, words="", limits=Limits(), cap_of=lambda agent_id: 9)]


def kill_with_child_and_resume(tx: Tx, at: float) -> list[Callable[[Commit], object]]:
    """Kill a run while its child is there, and let it go on."""
    return kill_and_resume(tx, at) if "below" in runs(tx) else []


def remove_once(tx: Tx, at: float) -> list[Callable[[Commit], object]]:
    """Take a run off the lists that was told."""
    run = runs(tx).get("w")
    return [partial(control.remove, key=run.key)] if run is not None and run.phase.name == "completed" else []


def off_the_lists(tx: Tx, folder: Path) -> list[str]:
    """What is wrong with the run that was removed, and with the numbers of all."""
    wrong = [] if runs(tx)["w"].phase.name == "archived" else ["w was not removed"]
    numbers = [tx.runs.number(key) for key in tx.runs.children(MAIN)]
    return wrong if numbers == list(range(1, 7)) else [*wrong, f"numbered {numbers}"]


def kill_after_child_and_resume(tx: Tx, at: float) -> list[Callable[[Commit], object]]:
    """Once its child has ended, write to a run, kill it before it reads that, and let it go on."""
    found = runs(tx)
    run, below = found.get("back"), found.get("below")
    if run is None or below is None or below.ended is None or run.attempt > 1:
        return []
    if run.ended is None:
        return [_written_to_and_killed] if tx.inbox.get("by the way") is None else []
    return [partial(spawn.resume, key=run.key, words="", limits=Limits(), cap_of=lambda agent_id: 9)]


def _written_to_and_killed(c: Commit) -> None:
    key = runs(c.tx)["back"].key
    if c.tx.inbox.get("by the way") is None:
        control.send(c, key, "by the way", row_key="by the way")
        control.kill(c, key)


def read_after_the_resume(tx: Tx, folder: Path) -> list[str]:
    """What is wrong with what a resumed run read: the message that the kill left unread, once, and its child's result,
    as one that told something."""
    bodies = [from_body(entry.body) for entry in tx.transcripts.entries(runs(tx)["back"].key)]
    said = [body.text for body in bodies if isinstance(body, Spoken | Told)]
    wrong = [] if said.count("by the way") == 1 else [f"the message was read {said.count('by the way')} times"]
    silent = [text for text in said if "without anything to tell" in text]
    return wrong + [f"told that a child was silent: {text}" for text in silent]


def answer_in_odd_words(tx: Tx, at: float) -> list[Callable[[Commit], object]]:
    """Say something to a plan that is no answer to it, then answer it, in words of one's own."""
    run = runs(tx).get("plan")
    if run is None or run.phase.name != "awaiting_approval":
        return []
    name, words = ("odd", "approved?") if tx.inbox.get("odd") is None else ("answer", "Approved – go ahead")
    return [partial(control.send, key=run.key, message=words, row_key=name)]


def answered_in_odd_words(tx: Tx, folder: Path) -> list[str]:
    """What is wrong with what a planner read: what was no answer, and the answer, each once."""
    bodies = [from_body(entry.body) for entry in tx.transcripts.entries(runs(tx)["plan"].key)]
    said = Counter(body.text for body in bodies if isinstance(body, Spoken))
    wanted = ("approved?", "APPROVED: go ahead")
    return [f"{words!r} was read {said[words]} times" for words in wanted if said[words] != 1]


def all_orders(tx: Tx, at: float) -> list[Callable[[Commit], object]]:
    """Steer one and remove it in the end, kill two, resume one, send something to one, answer plans: each as soon as it
    can be done."""
    orders = (steer_once, kill_both, kill_and_resume, send_once, answer_plans, remove_once)
    return [wish for wishes in orders for wish in wishes(tx, at)]


def allow_all(tx: Tx, at: float) -> list[Callable[[Commit], object]]:
    """Approve whatever a person is asked."""
    return [
        partial(steps.answer, approval_id=asked.id, allow=True, answered_by="a person") for asked in tx.approvals.open()
    ]


def begin_with_bob(c: Commit) -> None:
    """There is another agent."""
    if c.tx.sessions.get(BOB) is None:
        spawn.open_conversation(c, BOB)
    control.send(c, MAIN, "go", row_key=f"go:{MAIN}")


def compacts(request: Request) -> Answer:
    """Says more than fits into a small window, so that it has to be summarised."""
    if request.messages[-1] == UserMessage(context.COMPACT_PROMPT):
        return "notes"
    is_first = request.messages == (UserMessage("do long"),)
    return ScriptedReply("on and on " * 300, (use("look"),)) if is_first else "SUMMARY: it fits"


# ---- the stories -----------------------------------------------------------------------------------------------------

EIGHT = tuple(f"w{n}" for n in range(8))
THREE = ("w1", "w2", "w3")

UNDER_FIRE: dict[str, Story] = {
    "every kind of call": Story(
        minds={
            "main": host(
                use("sessions_send", sessionKey=BOB, message="hello"),
                child("doer"),
                child("orch"),
                child("long"),
                child("helper", runtime=RUNTIME),
                child("guest", thread=True),
            ),
            "bob": lambda request: "hi" if "> hello" in request.messages[-1].text else "ANNOUNCE_SKIP",
            "doer": said(calls(use("look"), use("again"), use("once")), calls(use("exec")), "SUMMARY: done"),
            "orch": said(calls(child("below"), use("sessions_yield")), "SUMMARY: all below is done"),
            "below": said(calls(use("slow")), "SUMMARY: below"),
            "long": compacts,
            "guest": said("SUMMARY: in a thread"),
        },
        begin=begin_with_bob,
        ends=dict.fromkeys(("doer", "orch", "below", "long", "helper", "guest"), "ok"),
        told=dict.fromkeys(("doer", "orch", "long", "helper", "guest"), "main") | {"below": "orch"},
        wishes=allow_all,
        asks=frozenset({"exec"}),
        windows={"long": 700},
        config=TALKING,
    ),
    "every order": Story(
        minds={
            "main": host(
                *(child("w"), child("parent"), child("w3"), child("back")),
                *(child("plan", planMode=True), child("again", planMode=True)),
            ),
            "w": said(calls(use("once")), "SUMMARY: redirected"),
            "parent": said(calls(child("below"), use("slow")), "SUMMARY: never said"),
            "below": said(calls(use("slow")), "SUMMARY: never said"),
            "w3": said(calls(use("slow")), "SUMMARY: heard"),
            "back": said(calls(use("slow")), "SUMMARY: back again"),
            "plan": said("1. look 2. do", "SUMMARY: planned and done"),
            "again": said("1. guess", "1. measure", "SUMMARY: measured"),
        },
        begin=speak(),
        ends=dict.fromkeys(("w", "w3", "back", "plan", "again"), "ok") | dict.fromkeys(("parent", "below"), "killed"),
        told=dict.fromkeys(("w", "w3", "back", "plan", "again"), "main"),
        wishes=all_orders,
        faults=off_the_lists,
        tool_s=6.0,
    ),
}
"""Stories with a call of every kind, and with every order: killed at every point that somebody passes in them."""

STORIES: dict[str, Story] = {
    "eight children side by side": Story(
        minds={"main": host(*map(child, EIGHT))} | {label: works(label) for label in EIGHT},
        begin=speak(),
        ends=dict.fromkeys(EIGHT, "ok"),
        told=dict.fromkeys(EIGHT, "main"),
    ),
    "collected after a debounce": Story(
        minds={
            "main": said(calls(*map(child, THREE), use("look")), "It is under way.", "NO_REPLY"),
            "w1": said("w1 is done"),
            "w2": works("w2"),
            "w3": said(calls(use("look")), calls(use("again")), "w3 is done"),
        },
        begin=speak(),
        ends=dict.fromkeys(THREE, "ok"),
        told=dict.fromkeys(THREE, "main"),
        tool_s=2.0,
    ),
    "steered into a busy turn": Story(
        minds={
            "main": said(calls(child("w")), calls(use("look")), calls(use("once")), "It is here.", "NO_REPLY"),
            "w": said("w is done"),
        },
        begin=speak(),
        ends={"w": "ok"},
        told={"w": "main"},
        rules=rules("steer"),
    ),
    "given up, and retried": Story(
        minds={"other": host(child("orphan")), "orphan": said(calls(use("look")), "orphan is done")},
        begin=begin_other,
        ends={"orphan": "ok"},
        told={"orphan": "other"},
        wishes=lose_and_find,
        tool_s=6.0,
    ),
    "deleted after it was told": Story(
        minds={"main": host(child("w", cleanup="delete")), "w": works("w")},
        begin=speak(),
        ends={"w": "ok"},
        told={"w": "main"},
    ),
    "main, an orchestrator, three workers": Story(
        minds={
            "main": host(child("o")),
            "o": said(calls(*map(child, THREE), use("sessions_yield")), "SUMMARY: all three are done"),
        }
        | {label: works(label) for label in THREE},
        begin=speak(),
        ends=dict.fromkeys(("o", *THREE), "ok"),
        told={"o": "main"} | dict.fromkeys(THREE, "o"),
        rules=rules(width=2),
    ),
    "steered in the middle of a call": Story(
        minds={"main": host(child("w")), "w": said(calls(use("once")), "SUMMARY: redirected")},
        begin=speak(),
        ends={"w": "ok"},
        told={"w": "main"},
        wishes=steer_once,
        tool_s=30.0,
    ),
    "killed with a child, and resumed": Story(
        minds={
            "main": host(child("back")),
            # Crashes cut calls short: there are enough of them for the kill to come first.
            "back": said(calls(child("below"), use("once")), *[calls(use("slow"))] * 2, "SUMMARY: back again"),
            "below": said(*[calls(use("slow"))] * 3, "SUMMARY: never said"),
        },
        begin=speak(),
        ends={"back": "ok", "below": "killed"},
        told={"back": "main"},
        wishes=kill_with_child_and_resume,
        tool_s=6.0,
    ),
    "killed after its child had ended, and resumed": Story(
        minds={
            "main": host(child("back")),
            "back": said(calls(child("below"), use("once")), *[calls(use("slow"))] * 3, "SUMMARY: back again"),
            "below": said(calls(use("look")), "SUMMARY: below is done"),
        },
        begin=speak(),
        ends={"back": "ok", "below": "ok"},
        told={"back": "main", "below": "back"},
        wishes=kill_after_child_and_resume,
        tool_s=6.0,
        faults=read_after_the_resume,
    ),
    "a plan answered in odd words": Story(
        minds={
            "main": host(child("plan", planMode=True)),
            "plan": said(calls(use("look")), "1. look 2. do", calls(use("once")), "SUMMARY: as planned"),
        },
        begin=speak(),
        ends={"plan": "ok"},
        told={"plan": "main"},
        wishes=answer_in_odd_words,
        faults=answered_in_odd_words,
    ),
    "killed with a spawn in flight": Story(
        minds={
            "main": host(child("parent")),
            "parent": said(calls(child("late", thread=True, mode="session")), "SUMMARY: never said"),
            "late": said("late is done"),
        },
        begin=speak(),
        ends={"parent": "killed"},
        told={},
        wishes=kill_it,
        bind_s=20.0,
    ),
    "the last child settles as its parent yields": Story(
        minds={
            "main": host(child("o")),
            # The worker's only reply and the orchestrator's second are due at the same moment.
            "o": said(calls(child("w")), calls(use("sessions_yield")), "SUMMARY: w is done"),
            "w": said("w is done"),
        },
        begin=speak(),
        ends={"o": "ok", "w": "ok"},
        told={"o": "main", "w": "o"},
        tool_s=0.0,
    ),
    "worktrees that hold work, and one that holds none": Story(
        minds={
            "main": host(*map(spawned, LABELS)),
            "clean": said(calls(use("look")), "SUMMARY: nothing to do"),
            "dirty": said(calls(use("scribble")), "SUMMARY: written"),
            "ahead": said(calls(use("record")), "SUMMARY: recorded"),
        },
        begin=speak(),
        ends=dict.fromkeys(LABELS, "ok"),
        told=dict.fromkeys(LABELS, "main"),
        worktrees=True,
        weight=3,
        faults=faults,
    ),
    "a provider that is down for a while": Story(
        minds={"main": host(child("w")), "w": down_for(3, works("w"))},
        begin=speak(),
        ends={"w": "ok"},
        told={"w": "main"},
    ),
    "a reply in two parts": Story(
        minds={"main": host(child("w")), "w": said(ScriptedReply("SUMMARY: w is ", stop="length"), "done")},
        begin=speak(),
        ends={"w": "ok"},
        told={"w": "main"},
        faults=in_one_piece,
    ),
    "a mute conversation, and a child in a thread": Story(
        minds={"main": mute(child("w", thread=True, mode="session"), child("v")), "w": works("w"), "v": works("v")},
        begin=partial(heard, address=ANN, text="go", message_id="m-1"),
        ends={"w": "ok", "v": "ok"},
        told={"w": "main", "v": "main"},
        thread=THREAD,
        faults=heard_outside,
    ),
    "a request whose turn yields": Story(
        minds={"main": said(calls(child("w"), use("sessions_yield")), "It is done."), "w": works("w")},
        begin=asked_for,
        ends={"w": "ok"},
        told={"w": "main"},
        faults=answered_in_the_end,
    ),
    "plans approved and rejected": Story(
        minds={
            "main": host(child("plan", planMode=True), child("again", planMode=True)),
            "plan": said("1. look 2. do", "SUMMARY: planned and done"),
            "again": said("1. guess", "1. measure", "SUMMARY: measured"),
        },
        begin=speak(),
        ends={"plan": "ok", "again": "ok"},
        told={"plan": "main", "again": "main"},
        wishes=answer_plans,
    ),
}
