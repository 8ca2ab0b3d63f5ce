"""Spawning on the real store: limits hold whatever the order, refusals name rule, value and setting, and what is
refused or fails leaves nothing behind."""

import asyncio
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from fledge.core import policy
from fledge.core.run import Run, Terms
from fledge.core.transcript import Replied, Spoken, from_body
from fledge.errors import BadInput, IllegalTransition, NotFound, Refused
from fledge.orchestrator import budget, spawn, transcripts
from fledge.orchestrator.commit import Commit, Rules
from fledge.orchestrator.turns import Drive
from fledge.store.base import Spec, Tx
from fledge.store.sqlite import SqliteStore
from fledge.testing import START, SeededIds
from tests.model.world import MAIN
from tests.orchestrator.scene import Scene
from tests.statements import proves

PROGRAM = "agent:main:script"
SETTING = "agents.defaults.subagents"
CAP_REACHED = f"active children 5 of 5: {SETTING}.maxChildrenPerAgent"
TWO_DEEP = policy.Limits(max_depth=2, max_children=5)


@pytest.fixture
def scene() -> Iterator[Scene]:
    """Without the model's own invariants, which know other limits."""
    scene = Scene()
    yield scene
    scene.close()


def request(
    parent: str, limits: policy.Limits = TWO_DEEP, spec: Spec | None = None, **terms: Any
) -> spawn.SpawnRequest:
    return spawn.SpawnRequest(spec=spec or Spec(task="work"), terms=Terms(parent=parent, **terms), limits=limits)


def spawned(scene: Scene, parent: str, limits: policy.Limits = TWO_DEEP, **terms: Any) -> Run:
    return scene.commit(lambda c: spawn.spawn(c, request(parent, limits, **terms)))


def refusal(scene: Scene, asked: spawn.SpawnRequest) -> tuple[str, str]:
    """Status and reason of a spawn that must be refused and must change nothing."""
    before = scene.dump()
    with pytest.raises(Refused) as error:
        scene.commit(lambda c: spawn.spawn(c, asked))
    assert scene.dump() == before
    return error.value.status, error.value.reason


# ---- limits ----------------------------------------------------------------------------------------------------------


@proves("3.limits.2", "`maxChildrenPerAgent` is 5 active per session, at least 1")
def test_twenty_spawns_against_a_cap_of_five_admit_exactly_five(scene: Scene) -> None:
    admitted = [scene.attempt(lambda c: spawn.spawn(c, request(MAIN))) for _ in range(20)]
    assert [run is not None for run in admitted] == [True] * 5 + [False] * 15
    assert scene.sql("SELECT count(*) FROM runs") == [(5,)]
    assert (scene.counts(MAIN).spawned, scene.counts(MAIN).unsettled) == (5, 5)
    assert refusal(scene, request(MAIN)) == ("forbidden", CAP_REACHED)


@proves("0.limits.1", "Caps are checked and reserved in one transaction")
@pytest.mark.parametrize("batch", [1, 7, 512])
def test_twenty_concurrent_spawns_against_a_cap_of_five_admit_exactly_five(tmp_path: Path, batch: int) -> None:
    async def race() -> tuple[list[Run | BaseException], list[Run], int]:
        store = SqliteStore.open(tmp_path, batch=batch)
        ids, rules = SeededIds(1), Rules()

        def commit(tx: Tx) -> Commit:
            return Commit(tx, START, ids, rules)

        await store.transact(lambda tx: spawn.open_conversation(commit(tx), MAIN))
        jobs = [store.transact(lambda tx: spawn.spawn(commit(tx), request(MAIN))) for _ in range(20)]
        answers = await asyncio.gather(*jobs, return_exceptions=True)
        runs = await store.read(lambda tx: [tx.runs.load(key) for key in tx.runs.children(MAIN)])
        unsettled = (await store.read(lambda tx: tx.sessions.counts(MAIN))).unsettled
        await store.close()
        return answers, runs, unsettled

    answers, runs, unsettled = asyncio.run(race())
    admitted = [answer for answer in answers if isinstance(answer, Run)]
    assert sorted(run.key for run in admitted) == sorted(run.key for run in runs)
    assert (len(admitted), len({run.key for run in admitted}), unsettled) == (5, 5, 5)
    assert [str(answer) for answer in answers if not isinstance(answer, Run)] == [CAP_REACHED] * 15


def test_a_place_is_free_again_once_a_child_has_settled_and_not_before(scene: Scene) -> None:
    keys = [spawned(scene, MAIN).key for _ in range(5)]
    drive = scene.start(keys[0])
    assert refusal(scene, request(MAIN)) == ("forbidden", CAP_REACHED)
    scene.finish(drive)
    assert spawned(scene, MAIN).phase.name == "queued"
    assert refusal(scene, request(MAIN)) == ("forbidden", CAP_REACHED)


@proves("2.phases.1")
def test_reservations_take_places(scene: Scene) -> None:
    keys = [scene.commit(lambda c: spawn.reserve(c, request(MAIN))).key for _ in range(5)]
    assert refusal(scene, request(MAIN)) == ("forbidden", CAP_REACHED)
    scene.commit(lambda c: spawn.failed(c, keys[0], "no space"))
    assert spawned(scene, MAIN).phase.name == "queued"


@proves("2.phases.30", "A plan that awaits its answer counts as a child")
def test_a_plan_that_awaits_its_answer_takes_a_place(scene: Scene) -> None:
    one = policy.Limits(max_depth=1, max_children=1)
    drive = scene.start(spawned(scene, MAIN, one, plan=True).key)
    scene.finish(drive, "1. look")
    assert scene.counts(MAIN).unsettled == 0
    reason = f"active children 1 of 1: {SETTING}.maxChildrenPerAgent"
    assert refusal(scene, request(MAIN, one)) == ("forbidden", reason)


def test_a_plan_that_awaits_its_answer_over_an_unsettled_child_takes_one_place_not_two(scene: Scene) -> None:
    two = policy.Limits(max_depth=3, max_children=2)
    planner = scene.start(spawned(scene, MAIN, two, plan=True).key)
    below = scene.start(spawned(scene, planner.session, two, plan=True).key)
    scene.finish(below, "1. look")
    assert scene.finish(planner, "1. ask") == "on"
    scene.finish(planner, "1. ask")
    assert scene.phase(planner.session) == "awaiting_approval"
    scene.answer(below.session, True)
    assert scene.counts(MAIN).unsettled == 1
    assert spawned(scene, MAIN, two).phase.name == "queued"


@proves("3.limits.3", "An ended child with unsettled descendants counts as active")
def test_an_ended_child_with_unsettled_descendants_takes_a_place(scene: Scene) -> None:
    one = policy.Limits(max_depth=2, max_children=1)
    o = scene.start(spawned(scene, MAIN, one).key)
    w = scene.start(spawned(scene, o.session, one).key)
    scene.fail(o)
    assert refusal(scene, request(MAIN, one))[1] == f"active children 1 of 1: {SETTING}.maxChildrenPerAgent"
    scene.finish(w, "NO_REPLY")
    assert spawned(scene, MAIN, one).phase.name == "queued"


@proves("3.limits.1")
@proves("3.limits.15", "Depth comes from the stored session, else 1 + its parent's")
@pytest.mark.parametrize("deepest", [1, 2, 3])
def test_depth_comes_from_the_stored_session_and_ends_at_the_limit(scene: Scene, deepest: int) -> None:
    limits = policy.Limits(max_depth=deepest)
    parent = MAIN
    for depth in range(1, deepest + 1):
        run = spawned(scene, parent, limits, depth=77)
        assert (run.terms.depth, scene.session(run.key).depth, scene.session(run.key).parent) == (depth, depth, parent)
        parent = run.key
    assert refusal(scene, request(parent, limits)) == (
        "forbidden",
        f"depth {deepest} of {deepest}: {SETTING}.maxSpawnDepth",
    )


@proves("3.limits.17", "Role and control scope are stored at spawn and win")
def test_the_role_is_stored_with_the_session(scene: Scene) -> None:
    o = spawned(scene, MAIN)
    w = spawned(scene, o.key)
    assert [scene.session(key).facts.role for key in (MAIN, o.key, w.key)] == ["main", "orchestrator", "leaf"]


@proves("3.limits.6", "`maxRetained` counts settled, active and reserved, 0 is off")
def test_settled_children_count_as_retained(scene: Scene) -> None:
    limits = policy.Limits(max_children=5, max_retained=2)
    first = spawned(scene, MAIN, limits)
    scene.kill(first.key)
    spawned(scene, MAIN, limits)
    how = "free one: sessions_subagent_remove, /subagents remove, fledge remove"
    reason = f"retained 2 of 2: {SETTING}.maxRetained; {how}"
    assert refusal(scene, request(MAIN, limits)) == ("forbidden", reason)
    assert spawned(scene, MAIN, replace(limits, max_retained=3)).phase.name == "queued"
    assert spawned(scene, MAIN, replace(limits, max_retained=0)).phase.name == "queued"


@proves("3.limits.7", "Archived runs are not retained")
def test_archived_children_are_not_retained(scene: Scene) -> None:
    limits = policy.Limits(max_retained=1)
    first = spawned(scene, MAIN, limits, archive_after_s=10.0)
    scene.kill(first.key)
    scene.pass_time(10.0)
    assert scene.phase(first.key) == "archived"
    assert spawned(scene, MAIN, limits).phase.name == "queued"


# ---- who may spawn ---------------------------------------------------------------------------------------------------


@proves("3.params.1", "`task` is required and must have words")
@proves("7.input.2")
@pytest.mark.parametrize("task", ["", "  \n\t"])
def test_a_task_without_words_is_refused(scene: Scene, task: str) -> None:
    before = scene.dump()
    with pytest.raises(BadInput, match=r"^task: must not be empty$"):
        scene.commit(lambda c: spawn.spawn(c, request(MAIN, spec=Spec(task=task))))
    assert scene.dump() == before


@pytest.mark.parametrize("parent", ["agent:main:nobody", MAIN])
def test_a_session_that_is_not_there_or_deleted_spawns_nothing(scene: Scene, parent: str) -> None:
    scene.delete(MAIN)
    assert refusal(scene, request(parent)) == ("error", f"no session {parent}")


@pytest.mark.parametrize("end", ["text", "error", "kill", "skip", "delivered"])
def test_a_run_that_has_ended_spawns_nothing_because_it_could_not_hear_the_answer(scene: Scene, end: str) -> None:
    drive = scene.start(spawned(scene, MAIN).key)
    match end:
        case "error":
            scene.fail(drive)
        case "kill":
            scene.kill(drive.session)
            scene.exit(drive)
        case "skip":
            scene.finish(drive, "ANNOUNCE_SKIP")
        case _:
            scene.finish(drive, "the answer")
    if end == "delivered":
        scene.read_main()
    reason = f"{drive.session} has ended and cannot receive an answer: spawn from its requester"
    assert refusal(scene, request(drive.session)) == ("forbidden", reason)


@proves("4.session.2", "The first task announces")
def test_a_session_that_is_bound_to_a_thread_spawns_after_its_first_task_and_hears_the_answer(scene: Scene) -> None:
    drive = scene.start(spawned(scene, MAIN, mode="session").key)
    scene.finish(drive, "hello")
    scene.send(drive.session, "find out", None)
    turn = scene.start(drive.session)
    child = scene.start(spawned(scene, drive.session).key)
    scene.finish(turn, "I am on it")
    assert scene.counts(MAIN).unsettled == 1
    scene.finish(child, "found it")
    assert scene.outcome_row(child.session).session == drive.session
    assert scene.counts(MAIN).unsettled == 0
    scene.start(drive.session)
    assert scene.told(drive.session) == [child.session]


@proves("4.code.1")
def test_a_program_spawns_without_a_turn_and_its_children_know_it(scene: Scene) -> None:
    scene.commit(lambda c: spawn.open_program(c, PROGRAM))
    run = spawned(scene, PROGRAM, program=False)
    assert (run.terms.program, run.terms.depth) == (True, 1)
    assert scene.session(PROGRAM).kind == "program"
    scene.finish(scene.start(run.key), "the answer")
    assert scene.outcome_row(run.key).session == PROGRAM
    assert scene.claimable() == []


def test_a_childs_own_word_for_being_a_programs_is_not_believed(scene: Scene) -> None:
    assert spawned(scene, MAIN, program=True).terms.program is False


def test_opening_a_conversation_or_a_program_twice_changes_nothing(scene: Scene) -> None:
    scene.commit(lambda c: spawn.open_program(c, PROGRAM))
    before = scene.dump()
    scene.commit(lambda c: spawn.open_program(c, PROGRAM))
    scene.commit(lambda c: spawn.open_conversation(c, MAIN))
    assert scene.dump() == before
    scene.commit(lambda c: spawn.open_conversation(c, "agent:writer:notes"))
    named = scene.session("agent:writer:notes")
    assert (named.kind, named.parent, named.depth, named.facts.agent_id) == ("named", None, 0, "writer")
    assert scene.session(MAIN).kind == "main"


# ---- stops -----------------------------------------------------------------------------------------------------------


def asked_by(drive: Drive) -> spawn.SpawnRequest:
    return replace(request(drive.session), generations=drive.generations)


@pytest.mark.parametrize("stopped", ["own", "parent", "main"])
def test_a_stop_of_the_session_or_an_ancestor_refuses_what_an_older_turn_asks(scene: Scene, stopped: str) -> None:
    main = scene.main()
    o = scene.begin(main)
    w = scene.begin(o)
    key = {"own": w.session, "parent": o.session, "main": MAIN}[stopped]
    reserved = scene.commit(lambda c: spawn.reserve(c, replace(asked_by(w), limits=policy.Limits(max_depth=3))))
    scene.commit(lambda c: c.tx.sessions.raise_generation(key))
    reason = f"{key} was stopped after this turn began: stop_generation is 1"
    assert refusal(scene, asked_by(w)) == ("forbidden", reason)
    before = scene.dump()
    with pytest.raises(Refused) as error:
        scene.commit(lambda c: spawn.prepared(c, reserved.key, w.generations))
    assert (error.value.status, error.value.reason) == ("forbidden", reason)
    assert scene.dump() == before


def test_a_turn_that_opened_after_the_stop_may_spawn(scene: Scene) -> None:
    scene.finish(scene.main())
    scene.stop()
    drive = scene.main("again")
    assert drive.generations == {MAIN: 1}
    assert scene.phase(scene.spawn(drive)) == "queued"


def test_a_stop_elsewhere_refuses_nothing(scene: Scene) -> None:
    main = scene.main()
    first, second = scene.begin(main), scene.begin(main)
    scene.kill(first.session)
    assert scene.phase(scene.spawn(second)) == "queued"


def test_a_program_has_no_turn_that_could_be_stopped(scene: Scene) -> None:
    scene.commit(lambda c: spawn.open_program(c, PROGRAM))
    scene.commit(lambda c: c.tx.sessions.raise_generation(PROGRAM))
    assert spawned(scene, PROGRAM).phase.name == "queued"


# ---- what is agreed, and what is left --------------------------------------------------------------------------------


@proves("3.params.8", "`cleanup` is delete or keep, keep by default")
@proves("3.plan.1", "It forces keep")
@pytest.mark.parametrize(
    ("terms", "kept"),
    [
        ({}, "keep"),
        ({"cleanup": "keep"}, "keep"),
        ({"cleanup": "delete"}, "delete"),
        ({"cleanup": "delete", "plan": True}, "keep"),
        ({"cleanup": "delete", "mode": "session"}, "keep"),
    ],
)
def test_a_plan_and_a_bound_session_are_always_kept(scene: Scene, terms: dict[str, Any], kept: str) -> None:
    assert spawned(scene, MAIN, **terms).terms.cleanup == kept


@proves("3.params.2", "`label` is stored and shown")
def test_an_accepted_child_is_queued_with_its_task_and_its_names(scene: Scene) -> None:
    spec = Spec(task="look it up", label="Look", agent_id="writer", model="m")
    run = scene.commit(lambda c: spawn.spawn(c, request(MAIN, spec=spec, lane="nested")))
    assert run.key.startswith("agent:writer:subagent:")
    assert [(row.kind, row.body, row.source) for row in scene.unread(run.key)] == [("task", "look it up", MAIN)]
    assert scene.read(lambda tx: tx.runs.spec(run.key)) == spec
    facts = scene.session(run.key).facts
    assert (facts.agent_id, facts.label) == ("writer", "Look")
    place = scene.read(lambda tx: tx.queue.place(run.key))
    assert place is not None
    assert place.lane == "nested"
    assert scene.read(lambda tx: tx.runs.named(run.run_id)) == (run.key, 1)


@proves("2.phases.2", "`accepted` is answered only after the preparation is committed")
def test_a_reservation_cannot_be_claimed_and_is_accepted_once(scene: Scene) -> None:
    asked = request(MAIN)
    run = scene.commit(lambda c: spawn.reserve(c, asked))
    assert (run.phase.name, scene.unread(run.key), scene.claimable()) == ("spawning", [], [])
    scene.commit(lambda c: spawn.prepared(c, run.key, None))
    assert scene.claimable() == [run.key]
    with pytest.raises(IllegalTransition):
        scene.commit(lambda c: spawn.prepared(c, run.key, None))


@proves("2.phases.3", "spawning ends when the preparation fails, and nothing stays")
@proves("3.answer.7")
def test_a_spawn_that_fails_leaves_no_row_but_the_parents_count_of_what_it_ever_admitted(scene: Scene) -> None:
    spawned(scene, MAIN)
    before = scene.dump()
    counts = scene.counts(MAIN)
    run = scene.commit(lambda c: spawn.reserve(c, request(MAIN)))
    assert scene.dump() != before
    scene.commit(lambda c: spawn.failed(c, run.key, "no space"))
    after = scene.dump()
    # The number of its last event stays taken, by nobody's event, so that feeds can resume behind it.
    assert {table for table in before if before[table] != after[table]} == {"sessions", "run_events"}
    assert len(after["run_events"]) == len(before["run_events"]) + 1
    assert (scene.counts(MAIN).unsettled, scene.counts(MAIN).spawned) == (counts.unsettled, counts.spawned + 1)
    assert scene.read(lambda tx: tx.runs.named(run.run_id)) is None
    with pytest.raises(NotFound):
        scene.commit(lambda c: spawn.prepared(c, run.key, None))


@proves("3.answer.7")
def test_what_a_failed_spawn_made_outside_the_database_is_posted_for_removal(scene: Scene) -> None:
    run = scene.commit(lambda c: spawn.reserve(c, request(MAIN, leaves=("attachments/a",))))
    scene.commit(lambda c: spawn.failed(c, run.key, "no space"))
    posts = scene.read(lambda tx: tx.outbox.due(scene.clock.now(), 9))
    assert [(post.key, post.kind, post.body) for post in posts] == [
        (f"remove:{run.key}:end", "remove", '["attachments/a"]')
    ]


def test_failing_twice_or_after_being_accepted_changes_nothing(scene: Scene) -> None:
    reserved = scene.commit(lambda c: spawn.reserve(c, request(MAIN)))
    scene.commit(lambda c: spawn.failed(c, reserved.key, "no space"))
    accepted = spawned(scene, MAIN)
    before = scene.dump()
    for key in (reserved.key, accepted.key):
        scene.commit(partial(spawn.failed, key=key, reason="no space"))
    assert scene.dump() == before
    assert scene.phase(accepted.key) == "queued"


# ---- what is refused besides the limits ------------------------------------------------------------------------------


@proves("3.answer.5")
def test_limits_are_told_before_any_other_objection(scene: Scene) -> None:
    objected = replace(request(MAIN), objection=Refused("forbidden", "no such agent"))
    assert refusal(scene, objected) == ("forbidden", "no such agent")
    for _ in range(5):
        spawned(scene, MAIN)
    assert refusal(scene, objected) == ("forbidden", CAP_REACHED)


@proves("3.limits.17")
def test_a_leaf_stays_one_when_the_settings_would_allow_more(scene: Scene) -> None:
    leaf = spawned(scene, MAIN, policy.Limits(max_depth=1)).key
    scene.start(leaf)
    reason = "depth 1: it is a leaf and may not spawn: role stored at its own spawn"
    assert refusal(scene, request(leaf, policy.Limits(max_depth=3))) == ("forbidden", reason)


@proves("3.budgets.8", "At 100 % the tree refuses new spawns")
def test_a_tree_whose_budget_is_used_up_takes_no_more_children(scene: Scene) -> None:
    asked = replace(request(MAIN, policy.Limits(max_depth=3)), budget=policy.Budget(turns=1))
    above = scene.commit(lambda c: spawn.spawn(c, asked)).key
    scene.start(above)
    below = scene.start(spawned(scene, above, policy.Limits(max_depth=3)).key).session
    assert spawned(scene, below, policy.Limits(max_depth=3)).phase.name == "queued"
    scene.commit(lambda c: budget.settle(c, below, Replied("thought")))
    reason = f"the tree's budget is spent: {SETTING}.budget"
    assert refusal(scene, request(below, policy.Limits(max_depth=3))) == ("forbidden", reason)
    assert refusal(scene, request(above, policy.Limits(max_depth=3))) == ("forbidden", reason)
    assert spawned(scene, MAIN).phase.name == "queued"


def test_a_call_that_is_being_prepared_is_not_answered_twice(scene: Scene) -> None:
    asked = replace(request(MAIN), key="k")
    scene.commit(lambda c: spawn.reserve(c, asked))
    assert refusal(scene, asked) == ("error", "idempotencyKey: k is being prepared: try again in a moment")


# ---- forks -----------------------------------------------------------------------------------------------------------


def forking(parent: str, tokens: int = 0, **spec: Any) -> spawn.SpawnRequest:
    asked = request(parent, spec=Spec(task="go on", **spec))
    return replace(asked, forks=True, fork_tokens=tokens)


@proves("3.params.15")
def test_a_forked_child_starts_with_what_was_said_before_its_task(scene: Scene) -> None:
    scene.commit(lambda c: transcripts.write(c, MAIN, Spoken("the key is sk-abcdefghijklmnop"), Replied("noted")))
    key = scene.commit(lambda c: spawn.spawn(c, forking(MAIN))).key
    scene.start(key)
    told, task = [from_body(entry.body) for entry in scene.entries(key)]
    assert isinstance(told, Spoken)
    assert (told.kind, told.source) == ("fork", MAIN)
    assert "user: the key is [redacted]\n\nassistant: noted" in told.text
    assert isinstance(task, Spoken)
    assert task.text == "go on"


def test_what_was_said_before_it_is_no_word_of_a_forked_child(scene: Scene) -> None:
    scene.commit(lambda c: transcripts.write(c, MAIN, Replied("noted", usage={"input": 50, "output": 5})))
    key = scene.commit(lambda c: spawn.spawn(c, forking(MAIN))).key
    scene.start(key)
    assert scene.commit(lambda c: transcripts.last_words(c, key)) is None
    assert scene.commit(lambda c: c.tx.transcripts.used(key)).tokens_in is None


@proves("3.params.16", "A fork needs the same agent, at most 100 000 tokens, and is redacted")
def test_a_fork_of_another_agent_of_a_program_or_of_too_much_is_refused(scene: Scene) -> None:
    assert refusal(scene, forking(MAIN, agent_id="helper")) == (
        "error",
        'context: fork is for the same agent: "helper" is not "main"',
    )
    scene.commit(lambda c: spawn.open_program(c, PROGRAM))
    assert refusal(scene, forking(PROGRAM)) == (
        "error",
        "context: fork needs a conversation, and a program has none",
    )
    scene.commit(lambda c: transcripts.write(c, MAIN, Spoken("x" * 4000)))
    status, reason = refusal(scene, forking(MAIN, tokens=100))
    assert status == "forbidden"
    assert reason.endswith(" of 100 tokens: session.parentForkMaxTokens")
