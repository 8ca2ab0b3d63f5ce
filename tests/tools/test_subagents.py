"""The `subagents` and `sessions_spawn` tools as a model uses them: what they answer, and what they refuse."""

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fledge.api.views import forest
from fledge.commands import lines
from fledge.core.run import Terms
from fledge.orchestrator import spawn, views
from fledge.store.base import Spec
from fledge.testing import Stage
from tests.model.world import MAIN
from tests.statements import proves
from tests.tools.desk import SAY, Desk, play


@proves("3.params.5", "`model` names another model")
@proves("3.answer.1", "accepted: childSessionKey, runId, mode, modelApplied, resolvedModel, note")
def test_an_accepted_spawn_names_child_run_model_and_says_not_to_poll(tmp_path: Path) -> None:
    async def body(desk: Desk) -> None:
        answer = await desk("sessions_spawn", task="look", label="eyes", model="openai/gpt-5")
        assert answer["status"] == "accepted"
        assert answer["childSessionKey"].startswith("agent:main:subagent:")
        assert (answer["mode"], answer["modelApplied"], answer["resolvedModel"]) == ("run", True, "openai/gpt-5")
        assert "Do not poll" in answer["note"]

    play(tmp_path, body)


@proves("2.phases.8")
@proves("3.params.23")
@proves("4.tools.9", "sessions_spawn is idempotent by session, assistant entry and call index")
def test_the_same_call_repeated_finds_the_child_it_made_before(tmp_path: Path) -> None:
    async def body(desk: Desk) -> None:
        first = await desk("sessions_spawn", index=7, task="look")
        assert await desk("sessions_spawn", index=7, task="look") == first
        other = await desk("sessions_spawn", index=8, task="look")
        assert other["childSessionKey"] != first["childSessionKey"]

    play(tmp_path, body)


@proves("1.names.2")
@proves("3.params.23", "`idempotencyKey` is scoped to the requester: the same call finds the same run")
@proves("3.params.24", "The same key with other parameters is an `error`")
def test_one_key_with_other_parameters_is_refused(tmp_path: Path) -> None:
    async def body(desk: Desk) -> None:
        first = await desk("sessions_spawn", task="look", idempotencyKey="k")
        assert (await desk("sessions_spawn", task="look", idempotencyKey="k"))["runId"] == first["runId"]
        refused = await desk("sessions_spawn", task="listen", idempotencyKey="k")
        assert refused == {"status": "error", "error": "idempotencyKey: k was used before with other parameters"}

    play(tmp_path, body)


@proves("3.params.1")
@proves("3.params.3", "`agentId` names another agent, if it may be spawned")
@proves("3.params.4", "An agentId of another shape is refused before anything is done")
@proves("3.answer.3", "forbidden and error carry their reason")
@proves("3.answer.7", "A refused or failed spawn leaves nothing behind")
@proves("3.limits.21", "An override that cannot be applied fails the spawn")
@proves("7.input.2", "Nothing is changed by a refused spawn")
@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        ({"task": " "}, {"status": "error", "error": "task: must not be empty"}),
        ({"task": "x", "agentId": "stranger"}, {"status": "error", "error": 'there is no agent "stranger"'}),
        ({"task": "x", "agentId": "../etc"}, {"status": "error", "error": "agentId: must be 1 to 64"}),
        ({"task": "x", "model": "gpt-0"}, {"status": "error", "error": "model: no such model"}),
    ],
)
def test_a_bad_spawn_is_answered_with_its_reason_and_leaves_nothing(
    tmp_path: Path, arguments: dict[str, Any], answer: dict[str, str]
) -> None:
    async def body(desk: Desk) -> None:
        given = await desk("sessions_spawn", **arguments)
        assert given["status"] == answer["status"]
        assert answer["error"] in given["error"]
        assert await desk.engine.store.read(lambda tx: tx.runs.children(MAIN)) == []
        assert await desk.engine.store.read(lambda tx: tx.sessions.counts(MAIN).spawned) == 0

    play(tmp_path, body)


@proves("3.answer.6")
def test_the_cap_names_rule_value_and_setting(tmp_path: Path) -> None:
    async def body(desk: Desk) -> None:
        for n in range(3):
            assert (await desk("sessions_spawn", task=f"{n}"))["status"] == "accepted"
        refused = await desk("sessions_spawn", task="one too many")
        assert refused == {
            "status": "forbidden",
            "error": "active children 3 of 3: agents.defaults.subagents.maxChildrenPerAgent",
        }

    play(tmp_path, body)


@proves("4.tools.1", "`subagents` lists, kills, steers, approves and rejects")
@proves("4.tools.25")
def test_list_shows_what_there_is_as_people_see_it(tmp_path: Path) -> None:
    async def body(desk: Desk) -> None:
        assert (await desk("subagents"))["text"].splitlines()[0] == "Subagents (current session)"
        await desk("sessions_spawn", task="look", label="eyes")
        answer = await desk("subagents")
        assert (answer["status"], answer["total"]) == ("ok", 1)
        assert answer["text"].splitlines()[1] == "Active: 1 · Done: 0"

    play(tmp_path, body)


@proves("1.roles.2")
@proves("4.tools.1")
def test_steer_and_kill_reach_the_one_that_is_meant(tmp_path: Path) -> None:
    async def body(desk: Desk) -> None:
        first = await desk("sessions_spawn", task="look", label="eyes")
        await desk("sessions_spawn", task="listen", label="ears")
        steered = await desk("subagents", action="steer", target="eyes", message="rather there")
        assert (steered["status"], steered["sessionKey"]) == ("accepted", first["childSessionKey"])
        assert steered["runId"] != first["runId"]
        again = await desk("subagents", action="steer", target="eyes", message="no, here")
        assert again["status"] == "rate_limited"
        killed = await desk("subagents", action="kill", target="ears")
        assert (killed["status"], len(killed["killed"])) == ("ok", 1)
        assert (await desk("subagents", action="kill", target="nobody"))["error"] == "no subagent 'nobody'"
        assert (await desk("subagents", action="kill", target="9" * 5000))["error"].startswith("no subagent '999")

    play(tmp_path, body)


def test_kill_all_takes_every_active_one_and_none_is_fine(tmp_path: Path) -> None:
    async def body(desk: Desk) -> None:
        assert await desk("subagents", action="kill", target="all") == {"status": "ok", "killed": []}
        for n in range(3):
            await desk("sessions_spawn", task=f"{n}")
        done = await desk("subagents", action="kill", target="*")
        assert len(done["killed"]) == 3

    play(tmp_path, body)


@proves("3.limits.8", "At the cap a spawn is refused until `sessions_subagent_remove`")
@proves("4.tools.6", "`sessions_subagent_remove` removes a settled run")
def test_a_finished_subagent_is_removed_and_its_place_is_free(tmp_path: Path) -> None:
    async def body(desk: Desk) -> None:
        keys = [(await desk("sessions_spawn", task=f"{n}", label=f"n{n}"))["childSessionKey"] for n in range(3)]
        refused = await desk("sessions_subagent_remove", target="n0")
        assert refused["status"] == "error"
        assert refused["error"].endswith(": wait for it, or kill it first")
        await desk("subagents", action="kill", target="n0")
        await desk.pass_time(10.0)
        full = await desk("sessions_spawn", task="more")
        assert full["error"].startswith("retained 3 of 3: agents.defaults.subagents.maxRetained; free one: ")
        assert await desk("sessions_subagent_remove", target="n0") == {"status": "ok", "removed": keys[0]}
        assert (await desk("subagents"))["total"] == 2
        assert (await desk("sessions_spawn", task="more"))["status"] == "accepted"
        assert (await desk("sessions_subagent_remove", target="n0"))["error"] == "no subagent 'n0'"

    play(tmp_path, body, "agents.defaults.subagents.maxRetained=3")


def test_the_one_to_remove_may_be_given_as_a_session_key(tmp_path: Path) -> None:
    async def body(desk: Desk) -> None:
        key = (await desk("sessions_spawn", task=f"{SAY}done", label="eyes"))["childSessionKey"]
        await desk("subagents", action="kill", target="eyes")
        await desk.pass_time(10.0)
        assert await desk("sessions_subagent_remove", sessionKey=key) == {"status": "ok", "removed": key}

    play(tmp_path, body)


@proves("3.params.11", "`planMode` makes the child plan first")
@proves("3.plan.6", "A plan is approved or rejected by the `subagents` tool, so orchestrators can")
@proves("4.tools.1")
def test_a_plan_is_approved_or_rejected_by_the_one_who_asked_for_it(tmp_path: Path) -> None:
    async def body(desk: Desk) -> None:
        planned = await desk("sessions_spawn", task="plan it", label="p", planMode=True)
        await desk.pass_time(5.0)
        refused = await desk("subagents", action="reject", target="p")
        assert refused == {"status": "error", "error": "message: must say why the plan is rejected"}
        approved = await desk("subagents", action="approve", target="p")
        assert (approved["status"], approved["sessionKey"]) == ("accepted", planned["childSessionKey"])
        assert (await desk("subagents", action="approve", target="p"))["status"] == "done"

    play(tmp_path, body)


def test_a_stopped_turn_spawns_nothing_more(tmp_path: Path) -> None:
    async def body(desk: Desk) -> None:
        await desk.engine.store.transact(lambda tx: tx.sessions.raise_generation(MAIN))
        refused = await desk("sessions_spawn", task="too late")
        assert refused["status"] == "forbidden"
        assert "was stopped" in refused["error"]

    play(tmp_path, body)


# ---- what a kill came to ---------------------------------------------------------------------------------------------


async def deaf(seconds: float) -> None:
    """Take time, however often one is cancelled."""
    loop = asyncio.get_running_loop()
    until = loop.time() + seconds
    while loop.time() < until:
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(until - loop.time())


def test_a_kill_tells_who_finished_first_and_who_did_not_stop(tmp_path: Path) -> None:
    async def stubborn(stage: Stage) -> None:
        task = msgspec.json.decode(await stage.task())["text"]
        try:
            await stage.sleep(1000)
        except asyncio.CancelledError:
            if task == "finish":
                await stage.say("done after all")
            elif task == "go on":
                await deaf(60)
            raise

    async def body(desk: Desk) -> None:
        keys = {
            name: (await desk("sessions_spawn", task=name, label=name))["childSessionKey"]
            for name in ("stop", "finish", "go on")
        }
        await desk.pass_time(1.0)
        before = desk.engine.clock.now()
        done = await desk("subagents", action="kill", target="all")
        assert done == {
            "status": "ok",
            "killed": [keys["stop"]],
            "finishedFirst": [keys["finish"]],
            "didNotStop": [keys["go on"]],
        }
        assert 5.0 <= desk.engine.clock.now() - before <= 7.0
        statuses = {row["label"]: row["status"] for row in (await desk("subagents"))["recent"]}
        assert statuses == {"stop": "killed", "finish": "done", "go on": "killed"}
        rows = await desk.engine.store.read(lambda tx: tx.inbox.unread(MAIN))
        assert [row.source for row in rows] == [keys["finish"]]

    play(tmp_path, body, others=stubborn)


def test_killing_what_has_ended_is_done(tmp_path: Path) -> None:
    async def body(desk: Desk) -> None:
        key = (await desk("sessions_spawn", task=f"{SAY}done"))["childSessionKey"]
        await desk.pass_time(1.0)
        assert await desk("subagents", action="kill", target="1") == {
            "status": "done",
            "error": f"{key} has ended, and nothing below it is running",
        }
        assert (await desk("subagents", action="steer", target="1", message="go"))["status"] == "done"

    play(tmp_path, body)


def test_a_session_that_did_not_start_it_may_not_direct_it(tmp_path: Path) -> None:
    answers: list[dict[str, Any]] = []

    async def meddler(stage: Stage) -> None:
        if "meddle" in await stage.task():
            siblings = await stage.engine.store.read(lambda tx: tx.runs.children(MAIN))
            desk = Desk(stage, tmp_path)
            actions = ("kill", "steer", "approve")
            answers.extend(
                [await desk("subagents", action=action, target=siblings[0], message="x") for action in actions]
            )
        await stage.sleep(1000)

    async def body(desk: Desk) -> None:
        await desk("sessions_spawn", task="work")
        await desk("sessions_spawn", task="meddle")
        await desk.pass_time(5.0)

    play(tmp_path, body, others=meddler)
    # It sees only what it started itself.
    assert [answer["status"] for answer in answers] == ["error"] * 3
    assert answers[0]["error"].startswith("no session 'agent:main:subagent:")


def test_another_controller_than_the_requester_may_direct_and_the_requester_may_not(tmp_path: Path) -> None:
    async def body(desk: Desk) -> None:
        turn = await desk.engine.store.read(lambda tx: tx.turns.get(MAIN))
        assert turn is not None
        spec = Spec(task="work", label="eyes", controller="agent:main:other")
        request = spawn.SpawnRequest(spec=spec, terms=Terms(parent=MAIN), generations=turn.generations)
        key = (await desk.engine.commit(lambda c: spawn.spawn(c, request))).key
        refused = await desk("subagents", action="kill", target="eyes")
        assert refused["status"] == "forbidden"
        assert refused["error"] == f"kill: {key} is controlled by another session, not by {MAIN}"

    play(tmp_path, body)


# ---- repeating a call, as after a crash ------------------------------------------------------------------------------


@proves("4.tools.10")
def test_a_repeated_steer_steers_once(tmp_path: Path) -> None:
    async def body(desk: Desk) -> None:
        await desk("sessions_spawn", task="look", label="eyes")
        first = await desk("subagents", index=50, action="steer", target="eyes", message="there")
        assert await desk("subagents", index=50, action="steer", target="eyes", message="there") == first
        key = first["sessionKey"]
        assert (await desk.engine.store.read(lambda tx: tx.runs.load(key))).attempt == 2

    play(tmp_path, body)


@proves("4.tools.10")
def test_a_repeated_answer_to_a_plan_answers_once(tmp_path: Path) -> None:
    async def body(desk: Desk) -> None:
        await desk("sessions_spawn", task="plan it", label="p", planMode=True)
        await desk.pass_time(5.0)
        first = await desk("subagents", index=50, action="approve", target="p")
        assert await desk("subagents", index=50, action="approve", target="p") == first

    play(tmp_path, body)


# ---- lists -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("given", ["label", "task"])
def test_every_list_shows_a_hundred_and_ten_characters_of_a_label_or_a_task(tmp_path: Path, given: str) -> None:
    whole, long = "w" * 110, "l" * 111
    cut = "l" * 109 + "…"

    async def body(desk: Desk) -> None:
        for name in (whole, long):
            fields: dict[str, Any] = {"task": "x", given: name}
            await desk("sessions_spawn", **fields)
        listed = await desk("subagents", action="list")
        assert [row[given] for row in listed["active"]] == [whole, cut]
        assert f" · {whole} · " in listed["text"]
        assert f" · {cut} · " in listed["text"]
        block = await desk.engine.store.read(lambda tx: views.children_shown(tx, MAIN, desk.engine.clock.now()))
        assert f'"{whole}"' in block
        assert f'"{cut}"' in block
        shown = await desk.engine.store.read(lambda tx: forest(tx, [MAIN], 10).runs)
        assert [lines.name_of(run) for run in shown] == [whole, cut]

    play(tmp_path, body)


def test_a_list_has_active_and_recent_rows_with_their_numbers(tmp_path: Path) -> None:
    async def body(desk: Desk) -> None:
        await desk("sessions_spawn", task=f"{SAY}done", label="first")
        await desk.pass_time(60.0)
        await desk("sessions_spawn", task="look\naround", label="eyes")
        await desk("sessions_spawn", task="plan it", label="p", planMode=True)
        await desk.pass_time(5.0)
        listed = await desk("subagents")
        assert [(row["index"], row["label"], row["status"]) for row in listed["active"]] == [
            (2, "eyes", "running"),
            (3, "p", "awaiting approval [PLAN:AWAITING APPROVAL]"),
        ]
        assert [(row["index"], row["label"], row["status"]) for row in listed["recent"]] == [(1, "first", "done")]
        assert listed["active"][0]["task"] == "look around"
        assert (await desk("subagents", recentMinutes=1))["recent"] == []

    play(tmp_path, body)
