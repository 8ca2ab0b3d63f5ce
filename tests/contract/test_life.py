"""§1 and §2 of the contract, where no other test would fail: phases over a crash, slots, what is frozen and told."""

import ast
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

import fledge
from fledge.core.keys import parse_key
from fledge.core.run import Failed
from fledge.models.base import Usage
from fledge.models.scripted import ScriptedModel, ScriptedReply, use
from fledge.orchestrator import control, spawn, turns
from tests.model.world import MAIN
from tests.orchestrator.scene import Scene, child_in, scene_fixture
from tests.orchestrator.stage import NARROW, Theatre, World, in_turns, rules, works
from tests.runtime.desk import Desk, Kit, Office, cast, in_turn, worker
from tests.statements import proves

scene = pytest.fixture(scene_fixture)


@pytest.fixture
def theatre(tmp_path: Path) -> Theatre:
    return Theatre(tmp_path)


@pytest.fixture
def office(tmp_path: Path) -> Office:
    return Office(tmp_path)


# ---- words -----------------------------------------------------------------------------------------------------------


@proves("1.keys.2", "Keys are flat at any depth")
def test_the_key_of_a_grandchild_is_as_flat_as_that_of_a_child(scene: Scene) -> None:
    o = scene.orchestrator(lane="nested")
    w = scene.begin(o)
    v = scene.begin(w)
    assert [parse_key(drive.session).kind for drive in (o, w, v)] == ["subagent"] * 3
    assert [drive.session.count(":") for drive in (o, w, v)] == [3, 3, 3]


# ---- phases over a crash ---------------------------------------------------------------------------------------------


@proves("2.phases.10")
@proves("2.phases.17")
@proves("2.phases.24")
@proves("2.phases.27")
@proves("2.phases.34", "After a crash a plan still awaits its answer")
@proves("2.phases.40", "After a crash every settled run stays as it is")
@pytest.mark.parametrize(
    "phase",
    ["queued", "waiting", "awaiting_approval", "announcing", "announce_deferred", "completed", "completed_giveup"],
)
def test_a_crash_changes_nothing_about_a_run_that_nobody_drives(scene: Scene, phase: str) -> None:
    key = child_in(scene, phase)
    before = scene.run(key)
    scene.crash()
    assert scene.run(key) == before


@proves("2.phases.40")
def test_an_archived_run_is_as_it_was_after_a_crash(scene: Scene) -> None:
    key = child_in(scene, "archived")
    before = scene.run(key)
    scene.crash()
    assert scene.run(key) == before


@proves("2.phases.27", "After a crash a deferred announce continues")
@proves("2.phases.34")
@pytest.mark.parametrize("phase", ["announce_deferred", "awaiting_approval"])
def test_what_was_due_at_the_crash_happens_at_its_time_in_the_next_process(scene: Scene, phase: str) -> None:
    key = child_in(scene, phase)
    due_at = scene.run(key).due_at
    assert due_at is not None
    scene.crash()
    scene.pass_time(due_at - scene.clock.now() - 0.001)
    assert scene.phase(key) == phase
    events = len(scene.read(lambda tx: tx.events.of(key)))
    scene.pass_time(0.001)
    assert len(scene.read(lambda tx: tx.events.of(key))) > events


@proves("2.phases.19", "After a crash a grace continues from its due time")
def test_a_grace_goes_on_over_a_crash_and_ends_at_its_time(scene: Scene) -> None:
    key = child_in(scene, "grace")
    due_at = scene.run(key).due_at
    assert due_at is not None
    scene.clock.advance(10.0)
    scene.crash()
    assert (scene.phase(key), scene.run(key).due_at) == ("ending", due_at)
    scene.pass_time(4.9)
    assert scene.phase(key) == "ending"
    scene.pass_time(0.1)
    assert scene.ended(key).outcome == Failed("overloaded")
    assert scene.read_main() == [key]


@proves("2.phases.36")
def test_a_cleanup_that_was_cut_off_by_a_crash_is_made_again_and_told_to_nobody_twice(theatre: Theatre) -> None:
    async def first(world: World) -> str:
        async def hang(leaves: tuple[str, ...]) -> None:
            await world.clock.sleep(1000)

        world.performer.removes = hang
        key = await world.spawn("a", leaves=("/one",))
        await world.clock.sleep(5)
        assert (await world.run(key)).phase.name == "cleanup_pending"
        return key

    hooks = rules(hooks=("subagent_ended",))
    key = theatre.act(first, {"a": works(1, "done")}, hooks, ends="crashed")

    async def second(world: World) -> None:
        await world.clock.sleep(5)
        assert world.performer.removed == ["/one"]
        assert (await world.run(key)).phase.name == "completed"
        assert await world.told() == [["a"]]
        assert world.performer.called == [], "the hook had arrived before the crash"

    theatre.act(second, rules=hooks)


# ---- slots -----------------------------------------------------------------------------------------------------------


@proves("2.phases.29", "A plan that awaits its answer holds no slot")
def test_a_plan_that_awaits_its_answer_holds_no_slot(theatre: Theatre) -> None:
    async def body(world: World) -> None:
        await world.spawn("plans", plan=True)
        await world.spawn("works")
        await world.clock.sleep(10)
        assert world.driven("works") == [1.0]

    theatre.act(body, {"plans": works(1, "1. look")}, rules(widths=NARROW))


@proves("2.arbitration.23", "Delivery never waits inside a lane")
def test_a_result_that_waits_for_a_busy_requester_holds_no_slot(theatre: Theatre) -> None:
    async def body(world: World) -> None:
        await world.send()
        first, second = await world.spawn("first"), await world.spawn("second")
        await world.sleep_until(50)
        assert [(await world.run(key)).phase.name for key in (first, second)] == ["announcing", "announcing"]
        assert world.driven("second") == [1.0]
        await world.clock.sleep(100)
        assert await world.told() == [["first", "second"]]

    scripts = {"main": in_turns(works(100)), "first": works(1, "one"), "second": works(1, "two")}
    theatre.act(body, scripts, rules(widths=NARROW))


# ---- one function changes phases -------------------------------------------------------------------------------------


@proves("2.outcome.4", "One function changes phases; no code sets one by hand")
def test_no_code_but_the_decisions_of_the_core_sets_a_phase() -> None:
    """`move` in `core/effects.py` is the one place that makes a run of another phase; `born` makes the first."""
    root = Path(fledge.__file__).parent
    found = {
        str(file.relative_to(root))
        for file in root.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text("utf-8")))
        if isinstance(node, ast.Call)
        and getattr(node.func, "id", getattr(node.func, "attr", "")) in ("replace", "Run")
        and any(word.arg == "phase" for word in node.keywords)
    }
    assert found == {"core/lifecycle.py", "core/effects.py"}


@proves("2.outcome.4")
def test_only_the_lifecycle_calls_what_moves_a_run() -> None:
    root = Path(fledge.__file__).parent
    movers = {
        str(file.relative_to(root))
        for file in root.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text("utf-8")))
        if isinstance(node, ast.ImportFrom)
        and node.module in ("fledge.core.effects", "fledge.core.closing")
        and any(name.name == "move" for name in node.names)
    }
    assert movers == {"core/lifecycle.py", "core/closing.py", "core/reconcile.py"}
    # The two others are parts of the lifecycle: the rest of the program has nothing of them but constants.
    taken = {
        name.name
        for file in root.rglob("*.py")
        if str(file.relative_to(root)) not in movers
        for node in ast.walk(ast.parse(file.read_text("utf-8")))
        if isinstance(node, ast.ImportFrom)
        for name in node.names
        if node.module in ("fledge.core.closing", "fledge.core.reconcile")
        or (node.module == "fledge.core" and name.name in ("closing", "reconcile"))
    }
    assert all(name.isupper() for name in taken)


# ---- frozen results --------------------------------------------------------------------------------------------------


@proves("2.frozen.2")
def test_a_run_that_ends_without_words_is_told_by_its_last_tool_output(office: Office) -> None:
    model = worker(ScriptedReply("", (use("count"),)), "")

    async def body(desk: Desk) -> str:
        return await desk.result(await desk.work())

    told = office.act(body, model, Kit().tool("count", says="42 rows"))
    assert told == "(no final text) Last tool output:\n42 rows"


@proves("2.frozen.1")
def test_a_run_that_ends_without_words_is_told_by_its_last_ones_before_that(office: Office) -> None:
    model = worker(ScriptedReply("I found 42 rows", (use("count"),)), "")

    async def body(desk: Desk) -> str:
        return await desk.result(await desk.work())

    assert office.act(body, model, Kit().tool("count", says="42 rows")) == "I found 42 rows"


@proves("2.frozen.3", "It is never user text")
def test_the_words_of_a_user_are_never_a_result(office: Office) -> None:
    async def body(desk: Desk) -> str | None:
        key = await desk.spawn("worker")
        await desk.send("please say something", key)
        await desk.ended(key)
        ended = (await desk.run(key)).ended
        assert ended is not None
        return ended.result

    assert office.act(body, worker("", "", latency_s=1)) is None


@proves("2.frozen.4", "It is frozen once per attempt, at its end")
def test_each_attempt_is_frozen_once_at_its_end_and_later_words_are_another_text(scene: Scene) -> None:
    o = scene.orchestrator()
    scene.step(o, "thinking aloud")
    scene.finish(o, "the answer")
    ended = scene.ended(o.session)
    assert scene.text(ended.result) == "the answer"
    scene.send(o.session, "thanks")
    scene.finish(scene.start(o.session), "you are welcome")
    assert scene.ended(o.session) == ended
    assert scene.text(ended.result) == "the answer"


# ---- what is told ----------------------------------------------------------------------------------------------------


def nonces(scene: Scene) -> list[str]:
    texts = [words for words in scene.said(MAIN) if "BEGIN_UNTRUSTED_CHILD_RESULT" in words]
    return [words.split("nonce=")[1].split(">")[0] for words in texts]


@proves("2.announce.5", "The nonce differs from message to message")
def test_each_message_has_a_nonce_of_its_own(scene: Scene) -> None:
    for answer in ("one", "two", "three"):
        o = scene.orchestrator()
        scene.finish(o, answer)
        scene.read_main()
    assert len(set(nonces(scene))) == 3


@proves("2.announce.7", "The stats of a real run are its own tokens, cost and time")
def test_a_completion_tells_the_childs_own_time_tokens_and_cost(office: Office) -> None:
    answers = (
        ScriptedReply("", (use("wait"),), usage=Usage(12_000, 3_000)),
        ScriptedReply("done", usage=Usage(100, 100)),
    )
    model = ScriptedModel(cast(worker=in_turn(*answers)))

    async def body(desk: Desk) -> str:
        await desk.work()
        await desk.until(lambda tx: tx.turns.get(MAIN) is None and not tx.inbox.unread(MAIN))
        return "".join(await desk.heard(kind="event"))

    def price(name: str, usage: Usage) -> float:
        return (usage.input_tokens + usage.output_tokens) / 40_000

    told = office.act(body, model, Kit().tool("wait", 94), cost_usd=price)
    assert "Stats: runtime 1m34s • tokens 15.2k (in 12.1k / out 3.1k) • est $0.38" in told


# ---- waking ----------------------------------------------------------------------------------------------------------


@proves("2.nested.8", "A woken run's claim drains its children's own rows in creation order, untrusted-marked")
@proves("2.nested.9", "The wake row carries no copies")
def test_a_woken_run_reads_its_childrens_own_rows_in_creation_order_marked_as_untrusted(scene: Scene) -> None:
    o = scene.orchestrator(lane="nested")
    first, second = scene.begin(o), scene.begin(o)
    scene.wait(o)
    scene.finish(second, "words of the second")
    scene.finish(first, "words of the first")
    rows = [scene.outcome_row(drive.session).key for drive in (first, second)]
    scene.start(o.session)
    event, wake = (msgspec.json.decode(entry.body) for entry in scene.entries(o.session)[-2:])
    assert [item["row"] for item in event["completions"]] == rows
    for words in ("words of the second", "words of the first"):
        block = event["text"].split(words)[0].rpartition("<<<BEGIN_UNTRUSTED_CHILD_RESULT")
        assert "<<<END_UNTRUSTED_CHILD_RESULT" not in block[2]
        assert words not in wake["text"]
    assert wake["kind"] == "wake"


@proves("2.nested.10")
def test_a_wake_names_only_those_that_were_silent_since_the_last_one(scene: Scene) -> None:
    o = scene.orchestrator(lane="nested")
    for expected in ("first", "second"):
        w = scene.begin(o)
        scene.wait(o)
        scene.finish(w, "NO_REPLY")
        o = scene.start(o.session)
        wake = scene.said(o.session)[-1]
        assert wake == f'What you waited for is here. Ended without anything to tell: "w" ({w.session}).', expected
    v = scene.begin(o)
    scene.wait(o)
    scene.finish(v, "found it")
    scene.start(o.session)
    assert scene.said(o.session)[-1] == "What you waited for is here."


# ---- backoff ---------------------------------------------------------------------------------------------------------


@proves("2.queue.11", "The backoff is reset on success")
def test_the_backoff_of_a_conversation_begins_anew_after_a_success(scene: Scene) -> None:
    def failed_for(main: turns.Drive) -> float:
        scene.fail(main)
        place = scene.read(lambda tx: tx.queue.place(MAIN))
        assert place is not None
        assert place.due_at is not None
        return place.due_at - scene.clock.now()

    main = scene.main()
    assert [failed_for(main), failed_for(scene.start(MAIN)), failed_for(scene.start(MAIN))] == [2.0, 4.0, 8.0]
    scene.finish(scene.start(MAIN), "at last")
    assert failed_for(scene.main("and now?")) == 2.0


# ---- giving up -------------------------------------------------------------------------------------------------------


@proves("0.lost.5", "Giving up is itself told")
@proves("2.hops.18", "A given-up result is announced at the next opportunity, once")
def test_a_conversation_that_comes_back_is_told_once_of_what_was_given_up_meanwhile(scene: Scene) -> None:
    key = child_in(scene, "completed_giveup")
    for _ in range(2):
        scene.commit(lambda c: spawn.open_conversation(c, MAIN))
    notices = [row for row in scene.unread(MAIN) if row.kind == "notice"]
    assert [row.body for row in notices] == [
        "w could not be delivered: no requester is left. It is in the undelivered list."
    ]
    scene.finish(scene.start(MAIN), "noted")
    scene.commit(lambda c: spawn.open_conversation(c, MAIN))
    assert scene.unread(MAIN) == []
    scene.commit(lambda c: control.retry(c, key))
    assert scene.read_main() == [key]


@proves("0.lost.5")
def test_another_conversation_is_not_told_of_what_was_given_up_elsewhere() -> None:
    with closing(Scene()) as scene:
        child_in(scene, "completed_giveup")
        scene.commit(lambda c: spawn.open_conversation(c, "agent:main:notes"))
        assert scene.unread("agent:main:notes") == []
