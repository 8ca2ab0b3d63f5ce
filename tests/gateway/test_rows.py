"""Rows through the gateway: pages of runs and sessions, what a kill would end, and rows on a feed."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import fledge
from fledge.commands.dispatch import call
from fledge.commands.feed import FeedEvent, RowEvent, Subscribe
from fledge.commands.gateway_state import GatewayState
from fledge.models.base import Request
from fledge.models.scripted import Answer, ScriptedReply, last_text
from fledge.testing import ScriptedModel, use
from tests.api.scene import Place
from tests.gateway.serving import Asks, OverSocket, Server, opened_watch, serving
from tests.statements import proves

MAIN = "agent:main:main"
SETTINGS: dict[str, object] = {
    "tools": {"launch": {"approval": "ask"}},
    "agents": {"defaults": {"subagents": {"maxConcurrent": 4, "maxSpawnDepth": 2}}, "list": [{"id": "critic"}]},
}


@fledge.tool
async def launch(target: str) -> str:
    """Launch."""
    return "launched"


@fledge.tool
async def ponder(question: str) -> str:
    """Take for ever."""
    await asyncio.Event().wait()
    return "never"


async def script(request: Request) -> Answer:
    """Does what its task says."""
    words = last_text(request)
    if "Fail" in words:
        raise ValueError("no such luck")
    if "Launch" in words:
        return ScriptedReply(calls=(use("launch", target="moon"),))
    if "Ponder" in words:
        return ScriptedReply(calls=(use("ponder", question="why?"),))
    if "Delegate" in words:
        return ScriptedReply(calls=(use("sessions_spawn", task="Ponder below", label="below"), use("sessions_yield")))
    return "done"


TOOLS: dict[str, Any] = {"tools": [launch, ponder]}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with serving(tmp_path / "state", ScriptedModel(script), SETTINGS, **TOOLS) as server:
        yield server


class Feed:
    """Rows as they come on a WebSocket, with the newest of each run."""

    def __init__(self, ask: OverSocket, **params: object) -> None:
        self._ask = ask
        ask.call("events.subscribe", rows=True, live=False, **params)
        self.rows: dict[str, dict[str, Any]] = {}
        self.cursor = 0

    def until(self, label: str, holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The row of this label, once this holds of it."""
        while label not in self.rows or not holds(self.rows[label]):
            event = self._ask.event()
            assert event["type"] in ("row", "approvals"), event
            if event["type"] == "row":
                self.rows[event["row"]["label"]] = event["row"]
                self.cursor = event["cursor"]
        return self.rows[label]


def is_doing(kind: str) -> Callable[[dict[str, Any]], bool]:
    return lambda row: row["now"] is not None and row["now"]["kind"] == kind


def spawned(ask: Asks, task: str, label: str, **params: object) -> dict[str, Any]:
    answer: dict[str, Any] = ask.call("runs.spawn", task=task, label=label, **params)
    assert answer["status"] == "accepted"
    return answer


def labels(page: dict[str, Any]) -> list[str]:
    return [row["label"] for row in page["rows"]]


@proves(
    "4.rows.1", "`runs.query` answers flat rows that say what each run does or waits for, and counts for each filter"
)
def test_rows_say_what_each_run_does_and_each_filter_finds_its_own(server: Server) -> None:
    with server.socket() as connection, server.socket() as second:
        ask, feed = OverSocket(connection), Feed(OverSocket(second), cursor=0)
        spawned(ask, "Say hello", "greeter", agentId="critic")
        feed.until("greeter", lambda row: row["phase"] == "completed")
        spawned(ask, "Fail at once", "failer")
        feed.until("failer", lambda row: row["phase"] == "completed")
        spawned(ask, "Launch it " + "far " * 100, "Launcher")
        asks = feed.until("Launcher", is_doing("you"))
        spawned(ask, "Delegate", "boss")
        ponders = feed.until("below", is_doing("tool"))
        spawned(ask, "Say a plan", "planner", planMode=True)
        plan = feed.until("planner", is_doing("you"))
        boss = feed.until("boss", is_doing("children"))
        page = ask.call("runs.query")
        assert labels(page) == ["planner", "below", "boss", "Launcher", "failer", "greeter"]
        assert page["counts"] == {"all": 6, "active": 4, "waiting": 2, "stuck": 0, "failed": 1, "undelivered": 0}
        assert page["next"] == ""
        assert page["isDriven"]
        for name in ("active", "waiting", "failed"):
            found = ask.call("runs.query", filter=name)
            assert len(found["rows"]) == page["counts"][name], name
        assert labels(ask.call("runs.query", filter="waiting")) == ["planner", "Launcher"]
        assert labels(ask.call("runs.query", filter="failed")) == ["failer"]
        assert labels(ask.call("runs.query", sort="active")) == [
            *("planner", "below", "boss", "Launcher"),
            *("failer", "greeter"),
        ]
        assert labels(ask.call("runs.query", requester="main", search="LAUNCH")) == ["Launcher"]
        assert labels(ask.call("runs.query", agentId="critic")) == ["greeter"]
        assert labels(ask.call("runs.query", root=boss["sessionKey"])) == ["below"]
        since = boss["createdAt"]  # another may have been made in the same millisecond
        assert labels(ask.call("runs.query", below=MAIN, since=since)) == [
            row["label"] for row in page["rows"] if row["createdAt"] >= since
        ]
        assert ask.call("runs.query", below=MAIN, since=page["rows"][0]["createdAt"] + 1)["rows"] == []
        by_label = {row["label"]: row for row in page["rows"]}
        assert asks["now"]["text"] == "waits for your approval: launch"
        assert asks["questionId"] == ask.call("approvals.list")[0]["id"]
        assert (plan["planId"], plan["now"]["text"]) == (plan["runId"], "waits for your answer to its plan")
        assert ponders["now"]["text"] == "ponder why?"
        assert (ponders["parent"], ponders["root"], ponders["depth"]) == (boss["sessionKey"], MAIN, 2)
        assert boss["now"]["text"] == "waits for 1 of 1 child"
        assert (boss["parent"], boss["unsettled"], boss["children"]) == (None, 1, 1)
        assert by_label["greeter"]["delivery"]["state"] == "delivered"
        assert by_label["greeter"]["delivery"]["deliveredAt"] is not None
        assert by_label["greeter"]["now"] is None
        assert "no such luck" in by_label["failer"]["error"]
        assert len(by_label["Launcher"]["task"]) == 200
        # The numbers are those that a word means.
        numbers = {row["number"]: row["label"] for row in page["rows"] if row["requester"] == MAIN}
        assert numbers == {1: "greeter", 2: "failer", 3: "Launcher", 4: "boss", 5: "planner"}
        for number, label in numbers.items():
            assert ask.call("runs.info", target=f"#{number}")["run"]["label"] == label
        # Page by page it is the same list.
        cursor, seen = "", list[str]()
        for _ in range(3):
            part = ask.call("runs.query", limit=2, cursor=cursor)
            seen, cursor = seen + labels(part), part["next"]
        assert (seen, cursor) == (labels(page), "")


@proves("4.rows.6", "A row says since when its run waits, and when it was steered or crashed; `runs.row` answers one")
def test_a_row_says_since_when_its_run_waits_and_what_was_done_to_it(server: Server) -> None:
    with server.socket() as connection, server.socket() as second:
        ask, feed = OverSocket(connection), Feed(OverSocket(second), cursor=0)
        spawned(ask, "Delegate", "boss")
        spawned(ask, "Say a plan", "planner", planMode=True)
        spawned(ask, "Ponder", "thinker")
        feed.until("thinker", is_doing("tool"))
        ask.call("runs.steer", target="thinker", message="Ponder something else")
        steered = feed.until("thinker", lambda row: row["attempt"] == 2 and is_doing("tool")(row))
        for label, kind, event in (("boss", "children", "Yielded"), ("planner", "you", "AttemptEnded")):
            row = feed.until(label, is_doing(kind))
            last = ask.call("runs.info", target=label)["timeline"][-1]
            assert (row["now"]["sinceAt"], event) == (last["at"], last["name"])
            assert row["marks"] == []
        told = [one["at"] for one in ask.call("runs.info", target="thinker")["timeline"] if one["name"] == "Steered"]
        assert [(one["at"], one["name"]) for one in steered["marks"]] == [(told[0], "steered")]
        assert steered["crashes"] == 0
        (listed,) = ask.call("runs.query", search="thinker")["rows"]
        for word in ("thinker", listed["sessionKey"], listed["runId"]):
            assert ask.call("runs.row", target=word) == listed


@proves("4.rows.2", "`runs.ends` tells what a kill would end, and ends nothing")
def test_what_a_kill_would_end_is_told_and_then_ended(server: Server) -> None:
    with server.socket() as connection, server.socket() as second:
        ask, feed = OverSocket(connection), Feed(OverSocket(second), cursor=0)
        spawned(ask, "Say hello", "greeter")
        feed.until("greeter", lambda row: row["phase"] == "completed")
        spawned(ask, "Delegate", "boss")
        feed.until("below", is_doing("tool"))
        spawned(ask, "Ponder", "other")
        feed.until("other", is_doing("tool"))
        assert labels(ask.call("runs.ends", target="boss")) == ["boss", "below"]
        assert labels(ask.call("runs.ends", target="all")) == ["boss", "below", "other"]
        assert ask.call("runs.ends", target="greeter") == {"rows": [], "leftOut": 0}
        assert ask.call("runs.query", filter="active")["counts"]["active"] == 3
        with pytest.raises(fledge.NotFound):
            ask.call("runs.ends", target="all", requester="agent:main:nobody")
        done = ask.call("runs.kill", target="boss", wait=True)
        assert len(done["killed"]) == 2
        assert labels(ask.call("runs.ends", target="all")) == ["other"]


def test_sessions_are_paged_and_say_what_waits_below_them(server: Server) -> None:
    with server.socket() as connection, server.socket() as second:
        ask, feed = OverSocket(connection), Feed(OverSocket(second), cursor=0)
        for name in ("one", "two", "three"):
            ask.call("send", session=name, message=f"Words for {name}", timeoutSeconds=30)
        spawned(ask, "Launch", "launcher", requester="agent:main:two")
        feed.until("launcher", is_doing("you"))
        first = ask.call("sessions.query", kinds=["named"], limit=2)
        rest = ask.call("sessions.query", kinds=["named"], limit=2, cursor=first["next"])
        assert [row["key"] for row in [*first["rows"], *rest["rows"]]] == [
            "agent:main:three",
            "agent:main:two",
            "agent:main:one",
        ]
        assert rest["next"] == ""
        two = first["rows"][1]
        assert (two["waits"], two["stuck"], two["firstWords"]) == (1, 0, "Words for two")
        assert (two["model"], two["workspace"]) == ("model", str(server.state.parent))
        found = ask.call("sessions.query", search="WORDS FOR ONE")
        assert [row["key"] for row in found["rows"]] == ["agent:main:one"]
        with pytest.raises(fledge.BadInput, match="cursor"):
            ask.call("sessions.query", cursor="1")


@pytest.mark.parametrize(
    ("params", "field"),
    [
        ({"cursor": "x"}, "cursor"),
        ({"limit": 501}, "limit"),
        ({"limit": 0}, "limit"),
        ({"filter": "broken"}, "filter"),
        ({"sort": "size"}, "sort"),
        ({"below": "a b"}, "below"),
        ({"since": -1}, "since"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_a_query_that_makes_no_sense_is_refused_by_its_field(
    tmp_path: Path, params: dict[str, object], field: str
) -> None:
    async def body(fl: fledge.Fledge) -> None:
        with pytest.raises(fledge.BadInput) as refused:
            await call(GatewayState(fl), "runs.query", params)
        assert refused.value.field == field

    Place(tmp_path).act(body)


# ---- feeds of rows ---------------------------------------------------------------------------------------------------


def told(events: list[FeedEvent]) -> list[tuple[str, str]]:
    return [(one.row.label, one.row.phase) for one in events if isinstance(one, RowEvent)]


@proves("4.rows.3", "A feed of rows tells each run at most once a second, and its last state always")
def test_a_row_is_told_at_once_then_after_a_second_and_its_last_state_is_never_dropped(tmp_path: Path) -> None:
    async def body(fl: fledge.Fledge) -> None:
        async with opened_watch(fl, Subscribe(rows=True, live=False)) as watch:
            before = watch.cursor
            run = await fl.spawn("Say hello", label="child")
            assert told(await watch.take()) == [("child", "queued")]
            await run
            loop = asyncio.get_running_loop()
            begun = loop.time()
            assert told(await watch.take()) == [], "not twice within a second"
            assert before <= watch.cursor < await fl.engine.store.read(lambda tx: tx.events.last())
            held_back = watch.cursor
            await watch.wait(15)
            while not (rows := told(await watch.take())):
                await watch.wait(15)
            assert rows == [("child", "completed")]
            assert 0.9 <= loop.time() - begun <= 1.1
            assert watch.cursor == await fl.engine.store.read(lambda tx: tx.events.last())
        async with opened_watch(fl, Subscribe(cursor=held_back, rows=True, live=False)) as again:
            assert told(await again.take()) == [("child", "completed")], "who resumes is told what was held back"

    Place(tmp_path).act(body, ScriptedModel(script), **TOOLS)


def test_a_row_follows_the_calls_of_its_run_and_comes_again_to_who_resumes(tmp_path: Path) -> None:
    async def body(fl: fledge.Fledge) -> None:
        async with opened_watch(fl, Subscribe(rows=True, live=False)) as watch:
            run = await fl.spawn("Ponder", label="thinker")
            seen: list[str] = []
            while "ponder why?" not in seen:
                await watch.wait(15)
                seen += [one.row.now.text for one in await watch.take() if isinstance(one, RowEvent) and one.row.now]
            cursor = watch.cursor
        async with opened_watch(fl, Subscribe(cursor=cursor, rows=True, live=False)) as again:
            assert told(await again.take()) == [("thinker", "running")]
        async with opened_watch(fl, Subscribe(cursor=cursor, rows=True, session="agent:main:other")) as elsewhere:
            assert await elsewhere.take() == []
        await run.kill()

    Place(tmp_path).act(body, ScriptedModel(script), config=SETTINGS, **TOOLS)


@proves("4.rows.7")
def test_every_row_of_a_feed_has_a_cursor_that_covers_this_row_and_all_before_it(tmp_path: Path) -> None:
    async def body(fl: fledge.Fledge) -> None:
        seen: list[RowEvent] = []
        async with opened_watch(fl, Subscribe(rows=True)) as watch:
            runs = [await fl.spawn(f"wait 0.{number}", label=str(number)) for number in range(4)]
            for run in runs:
                seen += [one for one in await watch.take() if isinstance(one, RowEvent)]
                assert (await run).status == "ok"
            while {one.row.label for one in seen if one.row.phase == "completed"} != set("0123"):
                seen += [one for one in await watch.next(15) if isinstance(one, RowEvent)]
        assert [one.cursor for one in seen] == sorted(one.cursor for one in seen)
        for count, last in enumerate(seen, 1):
            latest = {one.row.label: one.row.phase for one in seen[:count]}
            async with opened_watch(fl, Subscribe(cursor=last.cursor, rows=True)) as again:
                latest |= dict(told(await again.take()))
            assert latest == dict.fromkeys("0123", "completed"), f"resumed behind row {count}"

    Place(tmp_path).act(body)
