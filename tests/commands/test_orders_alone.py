"""Slash commands, each by itself: it does what it says, and says what it did. A script plays the subagents."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import pytest

import fledge
from fledge.commands.params import InSession
from fledge.commands.queries import sessions_below
from fledge.commands.slash import complete
from fledge.commands.table import Moment
from fledge.config import with_settings
from fledge.core.heartbeat import PROMPT
from fledge.core.policy import Limits
from fledge.core.route import Address
from fledge.core.run import Terms
from fledge.core.transcript import Replied, Spoken, from_body
from fledge.models.base import Request
from fledge.models.scripted import Answer, last_text
from fledge.orchestrator import bindings, control, spawn, steps
from fledge.store.base import Approval, Spec, Tx
from fledge.testing import ScriptedModel
from tests.api.scene import Place
from tests.commands.slashing import run_command
from tests.model.world import MAIN
from tests.statements import proves
from tests.tools.desk import SAY

SETTINGS = (
    "agents.defaults.subagents.maxChildrenPerAgent=9",
    "agents.defaults.subagents.maxSpawnDepth=2",
    "agents.defaults.subagents.allowAgents=['helper']",
    "agents.list=[{id:'helper',description:'looks things up'}]",
)


class Chat:
    """A person at a conversation."""

    def __init__(self, fl: fledge.Fledge) -> None:
        self.fl, self.engine = fl, fl.engine
        self.at: Address | None = None
        """Where the person stands: the place that `/focus` binds."""

    async def __call__(self, line: str) -> str:
        """What a command that goes well says."""
        result = await run_command(self.fl, MAIN, line, self.at)
        assert result.ok, result.text
        return result.text

    async def refused(self, line: str) -> str:
        """What a command that does not says."""
        result = await run_command(self.fl, MAIN, line, self.at)
        assert not result.ok, result.text
        return result.text

    async def child(self, label: str, task: str = "work", plan: bool = False) -> str:
        """A subagent of the conversation, under way."""
        request = spawn.SpawnRequest(
            spec=Spec(task=task, label=label),
            terms=Terms(parent=MAIN, plan=plan, timeout_s=100.0 if task == "for a while" else 0.0),
            limits=Limits(max_depth=3, max_children=9),
        )
        key = (await self.engine.commit(lambda c: spawn.spawn(c, request))).key
        await self.pass_time(1.0)
        return key

    async def pass_time(self, seconds: float) -> None:
        await self.engine.clock.wait_until(self.engine.clock.now() + seconds, asyncio.Event())

    async def words(self, session: str) -> list[str]:
        """What stands in a transcript."""

        def view(tx: Tx) -> list[str]:
            bodies = [from_body(entry.body) for entry in tx.transcripts.entries(session)]
            return [body.text for body in bodies if isinstance(body, Spoken | Replied)]

        return await self.engine.store.read(view)


async def world(request: Request) -> Answer:
    """One that is asked for a plan gives one, one whose task says what to answer answers it, every other works for
    long. The conversation has nothing to say."""
    words = last_text(request)
    if "# Subagent Context" not in request.system:
        return "NO_REPLY"
    if "## Plan mode" in request.system:
        return "1. look 2. tell"
    if words.startswith(SAY):
        return words.removeprefix(SAY)
    await asyncio.sleep(1000)
    return "done at last"


def chat(tmp_path: Path, body: Callable[[Chat], Awaitable[None]]) -> None:
    """Let a person talk, in a conversation that has begun."""

    async def acting(fl: fledge.Fledge) -> None:
        await fl.engine.commit(lambda c: spawn.open_conversation(c, MAIN))
        await body(Chat(fl))

    Place(tmp_path).act(acting, ScriptedModel(world), config=with_settings({}, SETTINGS).config)


# ---- looking ---------------------------------------------------------------------------------------------------------


def test_list_reads_as_the_contract_has_it(tmp_path: Path) -> None:
    async def body(chat: Chat) -> None:
        assert await chat("/subagents") == "Subagents (current session)\nActive: 0 · Done: 0"
        done = await chat.child("A", f"{SAY}done")
        key = await chat.child("AI Research")
        await chat.pass_time(149.0)
        ids = await chat.engine.store.read(lambda tx: [tx.runs.load(one).run_id[:8] for one in (key, done)])
        assert await chat("/subagents list") == (
            "Subagents (current session)\n"
            "Active: 1 · Done: 1\n"
            f"2) running · AI Research · 2m30s · run {ids[0]}\n"
            f"1) done · A · 0s · run {ids[1]}"
        )

    chat(tmp_path, body)


def test_info_log_and_tree_show_the_one_that_is_meant(tmp_path: Path) -> None:
    async def body(chat: Chat) -> None:
        key = await chat.child("eyes", f"{SAY}found it")
        info = (await chat("/subagents info eyes")).splitlines()
        assert info[0] == f"session   {key}"
        assert "label     eyes" in info
        assert await chat("/subagents log #1") == f"    1  task: {SAY}found it\n    2  assistant: found it"
        assert await chat("/subagents log eyes 1") == "    2  assistant: found it"
        assert (await chat("/subagents tree")).startswith("└─ #1 eyes · ")

    chat(tmp_path, body)


def test_a_deeper_one_is_found_by_its_names(tmp_path: Path) -> None:
    async def body(chat: Chat) -> None:
        parent = await chat.child("lead")
        turn = await chat.engine.store.read(lambda tx: tx.turns.get(parent))
        assert turn is not None
        request = spawn.SpawnRequest(
            spec=Spec(task="dig", label="deep"), terms=Terms(parent=parent), limits=Limits(max_depth=3)
        )
        key = (await chat.engine.commit(lambda c: spawn.spawn(c, request))).key
        assert (await chat("/subagents info deep")).startswith(f"session   {key}")
        assert (await chat(f"/subagents info {key}")).startswith(f"session   {key}")
        assert await chat.refused("/subagents info 2") == "no subagent #2: the last one is #1"

    chat(tmp_path, body)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("/subagents info nobody", "no subagent 'nobody'"),
        ("/kill twi", "'twi' is ambiguous: #1 twin1, #2 twin2: give its number"),
        ("/steer 9 left", "no subagent #9: the last one is #2"),
        ("/subagents log", "/subagents log: write it like this"),
        ("/kil 1", "/kil: there is no such command: perhaps /kill"),
        ("/focus twin1", "you speak from no place that could be bound"),
        ("/unfocus", "nothing is bound here"),
        ("/allow 1a2b", "/allow: no question is named '1a2b': /approvals lists what waits for you"),
        ("/subagents undelivered retry twin1", "nothing of it is undelivered"),
        ("/subagents approve twin1", "no plan awaits an answer"),
        ("/subagents spawn stranger x", 'there is no agent "stranger" (there are: helper, main)'),
    ],
)
def test_what_cannot_be_done_is_said_with_the_reason(tmp_path: Path, line: str, reason: str) -> None:
    async def body(chat: Chat) -> None:
        await chat.child("twin1")
        await chat.child("twin2")
        assert reason in await chat.refused(line)

    chat(tmp_path, body)


def test_status_tells_how_the_conversation_and_a_subagent_stand(tmp_path: Path) -> None:
    async def body(chat: Chat) -> None:
        await chat.child("ears")
        assert (await chat("/status")).splitlines() == [
            f"session   {MAIN} · idle",
            "model     none has answered yet",
            "used      tokens n/a",
            "queue     completions collect, messages steer · 0 unread",
            "subagents 1 active · 0 done",
        ]
        key = await chat.child("eyes", plan=True)
        await chat.pass_time(5.0)
        first = (await chat("/status eyes")).splitlines()[0]
        assert first.startswith(f"session   {key} · idle · awaiting approval [PLAN:AWAITING APPROVAL] · run ")

    chat(tmp_path, body)


def test_agents_lists_those_that_may_be_started(tmp_path: Path) -> None:
    async def body(chat: Chat) -> None:
        assert (
            await chat("/agents")
            == "Agents you may start:\n  main · given/model\n  helper · looks things up · given/model"
        )

    chat(tmp_path, body)


def test_help_lists_everything_and_what_is_no_command_is_refused(tmp_path: Path) -> None:
    async def body(chat: Chat) -> None:
        assert "/subagents steer <id|#> <message>" in await chat("/help")
        assert await chat("/subagents help") == await chat("/help")
        assert "must begin with /" in await chat.refused("hello")

    chat(tmp_path, body)


def test_a_line_is_completed_with_the_labels_of_this_conversation(tmp_path: Path) -> None:
    async def body(chat: Chat) -> None:
        await chat.child("AI Research")
        seen = await chat.engine.store.read(
            lambda tx: sessions_below(Moment(tx, chat.engine.clock.now(), True), InSession())
        )
        assert complete("/kill a", [(one.word, one.meaning) for one in seen.targets]) == [
            ('"AI Research"', "running"),
            ("all", "all of them"),
        ]

    chat(tmp_path, body)


# ---- directing -------------------------------------------------------------------------------------------------------


def test_kill_ends_one_or_all_and_says_what_it_ended(tmp_path: Path) -> None:
    async def body(chat: Chat) -> None:
        for name in ("one", "two", "three"):
            await chat.child(name)
        assert await chat("/kill two --dry-run") == "two · running: thinking"
        assert await chat("/kill two") == "killed: two"
        assert await chat.refused("/subagents stop two") != ""
        assert sorted((await chat("/subagents kill all")).removeprefix("killed: ").split(", ")) == ["one", "three"]
        assert await chat("/subagents kill all") == "nothing was running"
        # The conversation itself was not stopped: it can start others.
        assert (await chat("/subagents spawn main again")).startswith("started again · run ")

    chat(tmp_path, body)


@proves(
    "4.tools.66",
    "`/subagents remove <id|#>`, `fledge remove`, `Handle.remove`, the page: a finished run leaves the lists",
)
def test_remove_takes_a_finished_one_off_the_list_and_frees_its_place(tmp_path: Path) -> None:
    async def body(chat: Chat) -> None:
        key = await chat.child("eyes", f"{SAY}done")
        await chat.child("hands")
        assert await chat.refused("/subagents remove hands") == "hands: it is running: wait for it, or kill it first"
        assert await chat("/subagents remove 1") == "removed eyes"
        assert (await chat("/subagents list")).splitlines()[1:] == [
            "Active: 1 · Done: 0",
            (await chat("/subagents list")).splitlines()[-1],
        ]
        assert await chat.refused("/subagents remove 1") == "eyes: it is not in the lists any more"
        assert (await chat(f"/subagents info {key}")).startswith(f"session   {key}"), "its transcript is kept"

    chat(tmp_path, body)


def test_steer_redirects_and_may_not_be_hurried(tmp_path: Path) -> None:
    async def body(chat: Chat) -> None:
        key = await chat.child("eyes")
        assert (await chat("/steer eyes rather there")).startswith("steered eyes: attempt 2 · run ")
        assert "wait 2 s between steers" in await chat.refused("/subagents steer eyes no, here")
        await chat.pass_time(1.0)
        assert "rather there" in await chat.words(key)

    chat(tmp_path, body)


def test_send_tells_a_running_one_and_gets_the_answer_of_one_that_has_ended(tmp_path: Path) -> None:
    async def body(chat: Chat) -> None:
        await chat.child("busy")
        await chat.child("idle", f"{SAY}done")
        assert await chat("/tell busy hello") == (
            "sent to busy: it is read at the next step; the result is announced as usual"
        )
        assert await chat(f"/subagents send idle {SAY}still here") == "idle: still here"
        assert await chat(f"/subagents send idle {SAY}NO_REPLY") == "idle has nothing to say"
        assert await chat("/subagents send idle take your time") == (
            "sent to idle: it is still at it; its answer will be in its log"
        )

    chat(tmp_path, body)


def test_spawn_starts_one_that_reports_as_usual(tmp_path: Path) -> None:
    async def body(chat: Chat) -> None:
        said = await chat(f"/subagents spawn helper {SAY}looked it up --thinking low")
        assert said.startswith("started say: looked it up · run ")
        (key,) = await chat.engine.store.read(lambda tx: tx.runs.children(MAIN))
        assert key.startswith("agent:helper:subagent:")
        await chat.pass_time(5.0)
        run = await chat.engine.store.read(lambda tx: (tx.runs.load(key), tx.runs.spec(key)))
        assert (run[0].terms.parent, run[0].terms.expects, run[0].terms.cleanup) == (MAIN, True, "keep")
        assert (run[0].delivery is not None, run[1].thinking) == (True, "low")

    chat(tmp_path, body)


@pytest.mark.parametrize(
    ("line", "said", "message", "state"),
    [
        ("/subagents approve p", "approved the plan of p: attempt 2", "APPROVED: proceed", "approved"),
        (
            "/subagents approve p mind the cat",
            "approved the plan of p: attempt 2",
            "APPROVED: mind the cat",
            "approved",
        ),
        ("/subagents reject p too long", "rejected the plan of p: attempt 2", "REJECTED: too long", "planning"),
    ],
)
def test_a_plan_is_answered(tmp_path: Path, line: str, said: str, message: str, state: str) -> None:
    async def body(chat: Chat) -> None:
        key = await chat.child("p", plan=True)
        await chat.pass_time(5.0)
        assert "[PLAN:AWAITING APPROVAL]" in await chat("/subagents list")
        assert await chat(line) == said
        await chat.pass_time(1.0)
        assert message in await chat.words(key)
        assert (await chat.engine.store.read(lambda tx: tx.runs.load(key))).plan == state

    chat(tmp_path, body)


def test_stop_ends_the_turn_and_everything_below(tmp_path: Path) -> None:
    async def body(chat: Chat) -> None:
        assert await chat("/stop") == "stopped"
        await chat.child("one")
        await chat.child("two")
        assert sorted((await chat("/stop")).removeprefix("stopped; killed: ").split(", ")) == ["one", "two"]

    chat(tmp_path, body)


def test_undelivered_is_listed_retried_and_dismissed(tmp_path: Path) -> None:
    async def body(chat: Chat) -> None:
        assert await chat("/subagents undelivered") == "nothing is undelivered"
        keys = [await chat.child(name, "for a while") for name in ("one", "two")]
        await chat.engine.commit(lambda c: control.delete_session(c, MAIN))
        await chat.pass_time(150.0)
        await chat.engine.commit(lambda c: spawn.open_conversation(c, MAIN))
        lines = [
            f"{key}  {name}  (timeout; no requester is left)" for key, name in zip(keys, ("one", "two"), strict=True)
        ]
        assert await chat("/subagents undelivered") == "\n".join(lines)
        assert await chat("/subagents undelivered retry one") == "one is offered again"
        assert await chat(f"/subagents undelivered dismiss {keys[1]}") == "two is dismissed"
        await chat.pass_time(5.0)
        assert await chat("/subagents undelivered") == "nothing is undelivered"
        run = await chat.engine.store.read(lambda tx: tx.runs.load(keys[0]))
        assert run.delivery is not None
        assert run.delivery.word == "delivered"

    chat(tmp_path, body)


@proves("4.tools.24", "`/focus /unfocus`")
def test_a_thread_is_bound_to_a_subagent_and_let_go_by_whoever_bound_it(tmp_path: Path) -> None:
    async def body(chat: Chat) -> None:
        key = await chat.child("eyes", f"{SAY}done")
        thread = Address("board", "me", "t1")
        chat.at = thread
        assert await chat("/focus eyes") == "messages from here go to eyes now; /unfocus ends that"
        assert await chat.engine.store.read(lambda tx: bindings.session_at(tx, thread)) == key
        assert await chat("/agents") == (
            "Agents you may start:\n  main · given/model\n  helper · looks things up · given/model\n"
            "Bound to a thread:\n  eyes · done"
        )
        assert await chat("/unfocus") == "this place is not bound to eyes any more"
        assert await chat.engine.store.read(lambda tx: bindings.session_at(tx, thread)) is None
        await chat.engine.commit(lambda c: bindings.focus(c, key, key, thread, "somebody else"))
        assert "was bound by another owner" in await chat.refused("/unfocus")
        assert await chat.engine.store.read(lambda tx: bindings.session_at(tx, thread)) == key

    chat(tmp_path, body)


# ---- questions to a person -------------------------------------------------------------------------------------------


def question(session: str, name: str, at: float) -> Approval:
    return Approval(
        id=name,
        session=session,
        entry=1,
        index=0,
        tool="exec",
        arguments='{"command": "rm -r build"}',
        digest=steps.digest("exec", '{"command": "rm -r build"}'),
        state="waiting",
        asked_at=at,
        expires_at=at + 7200,
    )


def ask(asked: Approval, tx: Tx) -> None:
    tx.approvals.ask(asked)


def test_questions_are_listed_and_answered_by_the_person(tmp_path: Path) -> None:
    async def body(chat: Chat) -> None:
        assert await chat("/approvals") == "nothing waits for you"
        now = chat.engine.clock.now()
        key = await chat.child("eyes")
        other = "agent:main:other"
        await chat.engine.commit(lambda c: spawn.open_conversation(c, other))
        ids = ["1a2b0000-aaaa", "1a2bffff-bbbb", "9z000000-cccc"]
        asked = [question(key, ids[0], now), question(MAIN, ids[1], now + 1), question(other, ids[2], now)]
        for one in asked:
            await chat.engine.store.transact(partial(ask, one))
        assert await chat("/approvals") == (
            '1a2b0000  exec {"command": "rm -r build"}  for eyes, 2 h left: /allow 1a2b0000\n'
            f'1a2bffff  exec {{"command": "rm -r build"}}  for {MAIN}, 2 h left: /allow 1a2bffff'
        )
        assert "2 questions are named '1a2b'" in await chat.refused("/allow 1a2b")
        assert await chat("/allow 1A2B0") == "allowed: exec for eyes"
        assert await chat("/deny 1a2bf") == f"denied: exec for {MAIN}"
        assert "no question" in await chat.refused("/deny 9z")
        found = await chat.engine.store.read(lambda tx: [tx.approvals.get(name) for name in ids])
        assert [(one.state, one.answered_by) for one in found if one is not None] == [
            ("allowed", "gateway"),
            ("denied", "gateway"),
            ("waiting", ""),
        ]

    chat(tmp_path, body)


@proves("5.heartbeat.15")
@proves("5.heartbeat.16")
def test_an_event_is_posted_and_a_heartbeat_asked_for_in_the_conversation(tmp_path: Path) -> None:
    async def body(chat: Chat) -> None:
        assert await chat("/event the build is red") == "posted"
        assert await chat("/event the build is red") == "the last event that waits says the same"
        await chat.pass_time(1.0)
        assert (await chat.words(MAIN))[1] == "[System event] the build is red"
        before = len(await chat.words(MAIN))
        assert await chat("/heartbeat a new day") == f"a heartbeat of {MAIN} is asked for"
        await chat.pass_time(1.0)
        assert (await chat.words(MAIN))[before] == PROMPT

    chat(tmp_path, body)
