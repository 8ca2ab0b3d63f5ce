"""A message to a run whose plan awaits its answer, at every door a message comes in by: a word answers the plan, any
other message is kept, and its sender reads what the run waits for."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import fledge
from fledge.channels.inbound import inbound
from fledge.commands.dispatch import value_of
from fledge.commands.gateway_state import GatewayState
from fledge.core.exchange import AWAITS_ANSWER
from fledge.core.route import Address
from fledge.core.transcript import Spoken, from_body
from fledge.orchestrator import bindings
from fledge.orchestrator.messenger import SendParams, Sent
from fledge.store.base import Tx
from tests.api.scene import Place
from tests.commands.slashing import run_command
from tests.statements import proves

MAIN = "agent:main:main"
THREAD = Address("ops", "ann", "t-1")


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


async def planner(fl: fledge.Fledge) -> fledge.Handle[Any]:
    """A subagent of the main conversation whose plan awaits its answer."""
    await fl.session("main").send("hello")
    params = {"requester": "main", "task": "Say hello", "label": "p", "planMode": True}
    run = await fl.run((await value_of(GatewayState(fl), "runs.spawn", params))["childSessionKey"])
    assert await run.plan(timeout=60) is not None
    return run


# Each door sends the words to the run and answers what its sender reads.
Door = Callable[[fledge.Fledge, fledge.Handle[Any], str], Awaitable[str]]


async def by_handle(fl: fledge.Fledge, run: fledge.Handle[Any], words: str) -> str:
    await run.send(words)
    return ""


async def by_conversation(fl: fledge.Fledge, run: fledge.Handle[Any], words: str) -> str:
    return (await fl.session(run.session_key).send(words, timeout=0)).delivery


async def by_agent(fl: fledge.Fledge, run: fledge.Handle[Any], words: str) -> str:
    accepted = await fl.agent(words, session_key=run.session_key)
    return (await fl.session(run.session_key).reply(accepted.run_id, timeout=0)).delivery


async def by_send_verb(fl: fledge.Fledge, run: fledge.Handle[Any], words: str) -> str:
    params = {"session": run.session_key, "message": words, "timeoutSeconds": 0}
    reply: fledge.Reply = await value_of(GatewayState(fl), "send", params)
    return reply.delivery


async def by_runs_send(fl: fledge.Fledge, run: fledge.Handle[Any], words: str) -> str:
    params = {"target": run.session_key, "message": words}
    reply: fledge.Reply = await value_of(GatewayState(fl), "runs.send", params)
    return reply.delivery


async def by_runs_tell(fl: fledge.Fledge, run: fledge.Handle[Any], words: str) -> str:
    sent: Sent = await value_of(GatewayState(fl), "runs.tell", {"target": "p", "message": words})
    return sent.delivery


async def by_slash(fl: fledge.Fledge, run: fledge.Handle[Any], words: str) -> str:
    return (await run_command(fl, MAIN, f"/tell p {words}")).text


async def by_subagents_send(fl: fledge.Fledge, run: fledge.Handle[Any], words: str) -> str:
    return (await run_command(fl, MAIN, f"/subagents send p {words}")).text


async def by_tool(fl: fledge.Fledge, run: fledge.Handle[Any], words: str) -> str:
    caller = await fl.spawner.caller_for(MAIN)
    return (await fl.messenger.send(SendParams(message=words, session_key=run.session_key), caller)).delivery


async def by_thread(fl: fledge.Fledge, run: fledge.Handle[Any], words: str) -> str:
    await fl.engine.commit(lambda c: bindings.focus(c, MAIN, run.session_key, THREAD))
    await inbound(fl.engine, THREAD.channel, THREAD.to, THREAD.thread, words, "m-1")
    return await fl.engine.store.read(_posted)


DOORS: dict[str, Door] = {
    "Handle.send": by_handle,
    "Conversation.send": by_conversation,
    "fl.agent": by_agent,
    "send": by_send_verb,
    "runs.send": by_runs_send,
    "runs.tell": by_runs_tell,
    "/tell": by_slash,
    "/subagents send": by_subagents_send,
    "sessions_send": by_tool,
    "its thread": by_thread,
}


@proves(
    "3.plan.20", "A message whose first word is approve, approved, reject or rejected answers the plan, at any door"
)
@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize(
    ("words", "approved", "read"),
    [("Approved, go ahead", True, "APPROVED: go ahead"), ("rejected – too long", False, "REJECTED: too long")],
)
def test_a_word_answers_the_plan_at_every_door(place: Place, door: str, words: str, approved: bool, read: str) -> None:
    async def body(fl: fledge.Fledge) -> None:
        run = await planner(fl)
        told = await DOORS[door](fl, run, words)
        if door != "Handle.send":
            assert f"the plan is {'approved' if approved else 'rejected'}" in told
        row = await fl.until(lambda tx: _read(tx, run.session_key, read), timeout=60)
        assert row
        if not approved:
            assert await run.plan(timeout=60) is not None, "it plans again"
        else:
            assert (await run).status == "ok"

    place.act(body)


@proves(
    "3.plan.21", "Any other message to a run whose plan awaits its answer is kept; its sender reads how to answer it"
)
@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("words", ["Approved?", "looks good to me"])
def test_any_other_message_is_kept_and_its_sender_reads_how_to_answer(place: Place, door: str, words: str) -> None:
    async def body(fl: fledge.Fledge) -> None:
        run = await planner(fl)
        told = await DOORS[door](fl, run, words)
        if door != "Handle.send":
            assert AWAITS_ANSWER in told
        assert await run.plan(timeout=0) is not None
        await run.send("approved")
        assert (await run).status == "ok"
        assert await fl.until(lambda tx: _read(tx, run.session_key, words), timeout=60)

    place.act(body)


def _posted(tx: Tx) -> str:
    post = tx.outbox.get("notice:in:ops:m-1")
    assert post is not None
    return post.body


def _read(tx: Tx, key: str, words: str) -> bool | None:
    bodies = [from_body(entry.body) for entry in tx.transcripts.entries(key)]
    return any(isinstance(body, Spoken) and body.text == words for body in bodies) or None


def test_a_repeated_message_of_a_channel_answers_a_plan_once(place: Place) -> None:
    async def body(fl: fledge.Fledge) -> None:
        run = await planner(fl)
        await fl.engine.commit(lambda c: bindings.focus(c, MAIN, run.session_key, THREAD))
        for _ in range(2):
            await inbound(fl.engine, THREAD.channel, THREAD.to, THREAD.thread, "rejected: shorter", "m-1")
            assert await run.plan(timeout=60) is not None
            await asyncio.sleep(1)
        assert await fl.engine.store.read(lambda tx: tx.runs.load(run.session_key).attempt) == 2

    place.act(body)


def test_a_rejection_without_a_reason_is_answered_in_the_thread(place: Place) -> None:
    async def body(fl: fledge.Fledge) -> None:
        run = await planner(fl)
        assert "not taken: message: must say why the plan is rejected" in await by_thread(fl, run, "rejected")
        assert await run.plan(timeout=0) is not None

    place.act(body)
