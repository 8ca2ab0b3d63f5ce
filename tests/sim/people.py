"""The people around a simulated system: they talk, send, steer, kill, stop, answer plans and questions, delete
conversations, write from channels and into threads, and look after what could not be delivered; a program beside them
spawns and reads.

They live outside the process: what they have done is not done again after it died. An act is one commit on what is
there at that moment; a refusal is fine, and changes nothing.
"""

import random
from collections.abc import Callable, Iterator
from functools import partial

from fledge.channels.inbound import heard
from fledge.core import policy
from fledge.core.route import Address
from fledge.core.run import Terms
from fledge.orchestrator import bindings, control, heartbeat, outbox, spawn, steps
from fledge.orchestrator.commit import Commit
from fledge.store.base import Spec, Tx
from tests.rows import bound_routes
from tests.sim.schedule import CHANNELS, Act, Schedule, dice

MAIN, OTHER, PROGRAM = "agent:main:main", "agent:main:other", "agent:main:program"
BOB, EVE = "agent:bob:main", "agent:eve:main"
ROOTS = (MAIN, OTHER, PROGRAM, BOB, EVE)
NAMES = {MAIN: "main", OTHER: "other", PROGRAM: "program", BOB: "bob", EVE: "eve"}

Deciding = Callable[[Commit], object]


def opening(c: Commit) -> None:
    """Conversations and the program's place; again after a restart that changes nothing."""
    for key in (MAIN, OTHER):
        if c.tx.sessions.get(key) is None:
            spawn.open_conversation(c, key)
    spawn.open_program(c, PROGRAM)


def walk(tx: Tx, *roots: str) -> Iterator[str]:
    """All runs below these sessions, parents first."""
    for root in roots or ROOTS:
        for key in tx.runs.children(root):
            yield key
            yield from walk(tx, key)


def deeds(schedule: Schedule, act: Act, number: int, tx: Tx) -> list[Deciding]:
    """What this act wants committed, one by one."""
    throw = dice(schedule.seed, "people", number, act.pick)
    runs = [tx.runs.load(key) for key in walk(tx)]
    run = runs[act.pick % len(runs)] if runs else None
    match act.deed:
        case "say":
            key = throw.choice([MAIN, MAIN, MAIN, OTHER])
            return [partial(control.send, key=key, message=f"message {number}", row_key=f"said:{number}")]
        case "spawn":
            return [partial(spawn.spawn, request=program_spawn(schedule, number))]
        case "stop":
            return [partial(control.stop, session=throw.choice([MAIN, OTHER, *(found.key for found in runs)]))]
        case "delete":
            return [partial(control.delete_session, key=throw.choice([OTHER, *(found.key for found in runs)]))]
        case "answer":
            asked = [question for question in tx.approvals.open() if throw.random() < 0.8]
            allow = throw.random() < 0.7
            return [
                partial(steps.answer, approval_id=question.id, allow=allow, answered_by="a person")
                for question in asked
            ]
        case "plan":
            waiting = [found for found in runs if found.phase.name == "awaiting_approval"]
            approve = throw.random() < 0.7
            words = "APPROVED: proceed" if approve else "REJECTED: think again"
            return [partial(control.answer_plan, key=plan.key, approve=approve, words=words) for plan in waiting]
        case "read":
            return [partial(control.read_result, key=found.key) for found in runs if found.terms.program]
        case "undelivered":
            given_up = [found for found in runs if found.phase.name == "completed_giveup"]
            again = throw.random() < 0.5
            return [partial(control.retry if again else control.dismiss, key=found.key) for found in given_up]
        case "write":
            return _writes(schedule, throw, number, tx)
        case "resend":
            again = throw.random() < 0.5
            return [
                partial(outbox.retry if again else outbox.dismiss, key=post.key) for post in tx.outbox.undelivered()
            ]
        case "beat":
            return [partial(heartbeat.request, session=throw.choice([MAIN, OTHER]), reason=f"person {number} asks")]
        case "focus":
            place = Address(throw.choice(CHANNELS), "ann", throw.choice(["", "t-focus"]))
            if run is None or throw.random() < 0.3:
                return [partial(bindings.unfocus, session=MAIN, address=place)]
            return [partial(bindings.focus, session=MAIN, target=run.key, address=place)]
        case _ if run is None:
            return []
        case "send":
            source = run.terms.parent if throw.random() < 0.5 else None
            words = f"by the way, {number}"
            return [partial(control.send, key=run.key, message=words, source=source, row_key=f"said:{number}")]
        case "steer":
            return [partial(control.steer, key=run.key, message=f"rather this, {number}")]
        case "kill":
            return [partial(control.kill, key=run.key)]


def _writes(schedule: Schedule, throw: random.Random, number: int, tx: Tx) -> list[Deciding]:
    """Somebody writes from a channel, perhaps into the thread of a session, perhaps twice: what came is not known."""
    address = Address(throw.choice(CHANNELS), throw.choice(["ann", "bob"]), throw.choice(["", "", "t-focus"]))
    bound = bound_routes(tx)
    if bound and throw.random() < 0.5:
        address = throw.choice(bound).address
    agent = throw.choice(["main", "main", "bob"]) if schedule.beyond.chatty else "main"
    words = partial(heard, address=address, text=f"message {number}", message_id=f"m{number}", agent_id=agent)
    return [words] * throw.choice([1, 1, 2])


def program_spawn(schedule: Schedule, number: int) -> spawn.SpawnRequest:
    limits = schedule.config.agents.defaults.subagents
    terms = Terms(
        parent=PROGRAM,
        timeout_s=30.0 if number % 3 == 0 else 0.0,
        archive_after_s=limits.archive_after_minutes * 60.0,
    )
    return spawn.SpawnRequest(
        spec=Spec(task=f"the program's {number}", label=f"p{number}"),
        terms=terms,
        limits=policy.Limits(limits.max_spawn_depth, limits.max_children_per_agent),
        key=f"program:{number}",
    )
