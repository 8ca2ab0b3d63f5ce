"""After the end, as the engine carries it out: hooks, cleanup, archive, results that a program reads, and results that
nobody could be told."""

from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fledge.core import events as ev
from fledge.core.run import Delivered, Undelivered
from fledge.errors import NotFound, Refused
from fledge.orchestrator import control, effects, spawn
from fledge.orchestrator.commit import Commit
from fledge.store.base import OutboxPost
from fledge.testing import Stage
from tests.orchestrator.stage import MAIN, PROGRAM, Theatre, World, in_turns, rules, works
from tests.statements import proves

SPAWNED, ENDED = "subagent_spawned", "subagent_ended"
OTHER = "agent:main:other"


@pytest.fixture
def theatre(tmp_path: Path) -> Theatre:
    return Theatre(tmp_path)


# ---- hooks -----------------------------------------------------------------------------------------------------------


@proves("6.hooks.1", "There are hooks subagent_spawned and subagent_ended, one outbox row each")
@pytest.mark.parametrize(
    ("hooks", "called"),
    [
        ((), []),
        ((SPAWNED,), [(0.0, SPAWNED)]),
        ((ENDED,), [(1.0, ENDED)]),
        ((SPAWNED, ENDED), [(0.0, SPAWNED), (1.0, ENDED)]),
    ],
)
def test_a_hook_is_called_once_a_run_and_only_if_somebody_listens(
    theatre: Theatre, hooks: tuple[str, ...], called: list[tuple[float, str]]
) -> None:
    async def body(world: World) -> None:
        key = await world.spawn("a")
        await world.clock.sleep(5000)
        assert world.performer.called == called
        posts = [
            (post.run, post.kind, msgspec.json.decode(post.body)["event"]["hook"]) for post in world.performer.posted
        ]
        assert posts == [(key, "hook", hook) for _, hook in called]

    theatre.act(body, {"a": works(1)}, rules(hooks=hooks))


@proves("6.hooks.1")
@proves("6.hooks.4")
def test_each_hook_is_called_once_though_many_runs_begin_and_end_together(theatre: Theatre) -> None:
    async def body(world: World) -> None:
        keys = [await world.spawn(f"child {n}") for n in range(20)]
        await world.clock.sleep(60)
        called = sorted(post.key for post in world.performer.posted)
        assert called == sorted(f"hook:{hook}:audit:{key}" for hook in (SPAWNED, ENDED) for key in keys)

    scripts = {f"child {n}": works(1 + n % 3) for n in range(20)}
    theatre.act(body, scripts, rules(hooks=(SPAWNED, ENDED)))


def test_each_removal_is_made_once_though_many_runs_end_together(theatre: Theatre) -> None:
    async def body(world: World) -> None:
        for n in range(20):
            await world.spawn(f"child {n}", leaves=(f"/{n}",))
        await world.clock.sleep(60)
        assert sorted(world.performer.removed) == sorted(f"/{n}" for n in range(20))

    theatre.act(body, {f"child {n}": works(1 + n % 3) for n in range(20)})


@proves("6.hooks.4", "ended is called once per run")
def test_the_ended_hook_is_called_once_for_a_run_that_answers_a_message_after_its_end(theatre: Theatre) -> None:
    async def body(world: World) -> None:
        key = await world.spawn("a")
        await world.sleep_until(2)
        await world.send("one more thing", key)
        await world.clock.sleep(60)
        assert world.driven("a") == [0.0, 2.0]
        assert world.performer.called == [(0.0, ENDED)]
        assert await world.told() == [["a"]]

    theatre.act(body, rules=rules(hooks=(ENDED,)))


def failing(times: int) -> Callable[[OutboxPost], Awaitable[None]]:
    left = iter(range(times))

    async def call(post: OutboxPost) -> None:
        if next(left, None) is not None:
            raise ConnectionError("nobody listens")

    return call


@proves("6.hooks.6", "A throwing hook changes nothing")
@pytest.mark.parametrize(("failures", "at"), [(1, [0.0, 1.0]), (2, [0.0, 1.0, 3.0]), (9, [0.0, 1.0, 3.0, 7.0])])
def test_a_hook_that_raises_is_tried_after_one_two_and_four_seconds_and_then_given_up(
    theatre: Theatre, failures: int, at: list[float]
) -> None:
    async def body(world: World) -> None:
        world.performer.calls = failing(failures)
        key = await world.spawn("a")
        await world.clock.sleep(1000)
        assert world.performer.called == [(when, ENDED) for when in at]
        assert (await world.run(key)).phase.name == "completed"

    theatre.act(body, rules=rules(hooks=(ENDED,)))


def test_a_hook_that_hangs_delays_nothing_else_and_is_not_called_again_meanwhile(theatre: Theatre) -> None:
    async def body(world: World) -> None:
        async def hang(post: OutboxPost) -> None:
            if post.key.startswith(f"hook:{SPAWNED}"):
                await world.clock.sleep(50)

        world.performer.calls = hang
        key = await world.spawn("a")
        await world.sleep_until(20)
        assert await world.outcome(key) == ("ok", None, 1.0)
        assert await world.told() == [["a"]]
        assert world.performer.called == [(0.0, SPAWNED), (1.0, ENDED)]
        await world.spawn("b")
        await world.sleep_until(100)
        assert world.performer.called == [(0.0, SPAWNED), (1.0, ENDED), (20.0, SPAWNED), (21.0, ENDED)]

    theatre.act(body, {"a": works(1), "b": works(1)}, rules(hooks=(SPAWNED, ENDED)))


@proves("0.twice.5", "What leaves for hooks goes out at least once, under a stable id")
def test_closing_does_not_wait_for_a_hook_that_hangs_and_the_next_engine_calls_it_again(theatre: Theatre) -> None:
    async def body(world: World) -> None:
        async def hang(post: OutboxPost) -> None:
            await world.clock.sleep(1000)

        world.performer.calls = hang
        await world.spawn("a")
        await world.clock.sleep(1)
        assert world.performer.called == [(0.0, ENDED)]

    theatre.act(body, rules=rules(hooks=(ENDED,)))
    assert theatre.now < 100

    async def second(world: World) -> None:
        await world.clock.sleep(1)
        assert [hook for _, hook in world.performer.called] == [ENDED]

    theatre.act(second, rules=rules(hooks=(ENDED,)))


# ---- cleanup ---------------------------------------------------------------------------------------------------------


@proves(
    "2.phases.35",
    "cleanup_pending: delivery decided; hooks, attachments and session deletion remain until all are done",
)
def test_what_a_run_left_outside_is_removed_by_its_cleanup(theatre: Theatre) -> None:
    async def body(world: World) -> None:
        key = await world.spawn("a", leaves=("/one", "/two"))
        await world.clock.sleep(60)
        assert world.performer.removed == ["/one", "/two"]
        assert world.performer.cleaned == [1.0]
        assert (await world.run(key)).phase.name == "completed"

    theatre.act(body, {"a": works(1)})


@proves("6.cleanup.4", "A deletion that fails is retried, and the record stays")
def test_a_removal_that_raises_is_tried_for_ever_with_a_backoff_of_at_most_a_minute(theatre: Theatre) -> None:
    async def body(world: World) -> None:
        async def refuse(leaves: tuple[str, ...]) -> None:
            if world.at() < 200:
                raise PermissionError("in use")

        world.performer.removes = refuse
        key = await world.spawn("a", leaves=("/one",))
        await world.sleep_until(200)
        assert (await world.run(key)).phase.name == "cleanup_pending"
        assert await world.told() == [["a"]]
        await world.sleep_until(400)
        assert world.performer.cleaned == [0.0, 1.0, 3.0, 7.0, 15.0, 31.0, 63.0, 123.0, 183.0, 243.0]
        assert (await world.run(key)).phase.name == "completed"

    theatre.act(body)


@pytest.mark.parametrize(
    ("terms", "cleaned", "posted"),
    [
        ({"cleanup": "keep"}, ["attachments/1"], [(3600, ["worktrees/1"])]),
        ({"cleanup": "keep", "retains": True}, [], [(3600, ["attachments/1", "worktrees/1"])]),
        ({"cleanup": "delete"}, ["attachments/1", "worktrees/1"], [(3600, ["work/1", "worktrees/1"])]),
    ],
)
def test_what_a_run_left_goes_at_its_moment(
    theatre: Theatre, terms: dict[str, Any], cleaned: list[str], posted: list[tuple[int, list[str]]]
) -> None:
    every = ("attachments/1", "work/1", "worktrees/1")

    async def body(world: World) -> None:
        await world.spawn("a", leaves=every, **terms)
        await world.sleep_until(4000)
        assert world.performer.removed == cleaned
        found = [(post.kind, msgspec.json.decode(post.body)) for post in world.performer.posted]
        assert found == [("remove", leaves) for _, leaves in posted]
        await world.sleep_until(31 * 86400)
        assert ("remove", list(every)) in [
            (post.kind, msgspec.json.decode(post.body)) for post in world.performer.posted
        ]

    theatre.act(body)


def test_a_folder_is_not_removed_while_somebody_below_may_work_there(theatre: Theatre) -> None:
    async def fails(stage: Stage) -> None:
        await stage.spawn("low")
        await stage.fail("no more")

    async def body(world: World) -> None:
        key = await world.spawn("top", leaves=("/one",))
        await world.sleep_until(30)
        assert world.performer.removed == []
        assert (await world.run(key)).phase.name == "cleanup_pending"
        await world.sleep_until(200)
        assert world.performer.removed == ["/one"]
        assert (await world.run(key)).phase.name == "completed"

    theatre.act(body, {"top": fails, "low": works(50)})


def test_a_removal_that_a_crash_cut_off_is_done_by_the_next_process(theatre: Theatre) -> None:
    async def first(world: World) -> None:
        async def hang(leaves: tuple[str, ...]) -> None:
            await world.clock.sleep(1000)

        world.performer.removes = hang
        await world.spawn("a", leaves=("attachments/1",))
        await world.sleep_until(10)
        assert world.performer.cleaned == [0.0]

    theatre.act(first, ends="crashed")

    async def second(world: World) -> None:
        await world.clock.sleep(120)
        assert world.performer.removed == ["attachments/1"]

    theatre.act(second)


def test_a_removal_that_hangs_delays_nothing_else(theatre: Theatre) -> None:
    async def body(world: World) -> None:
        async def hang(leaves: tuple[str, ...]) -> None:
            await world.clock.sleep(50)

        world.performer.removes = hang
        key = await world.spawn("a", leaves=("/one",))
        await world.sleep_until(1)
        other = await world.spawn("b")
        await world.sleep_until(40)
        assert await world.told() == [["a"], ["b"]]
        assert [(await world.run(run)).phase.name for run in (key, other)] == ["cleanup_pending", "completed"]
        await world.sleep_until(60)
        assert world.performer.cleaned == [0.0]
        assert (await world.run(key)).phase.name == "completed"

    theatre.act(body)


@proves("2.phases.35")
@proves("2.frozen.16", "The frozen result outlives its session until archive")
@proves("6.cleanup.1", "`delete`: after delivery session and transcript go")
def test_cleanup_by_deletion_removes_the_session_and_its_result_stays_readable(theatre: Theatre) -> None:
    async def body(world: World) -> None:
        key = await world.spawn("a", cleanup="delete")
        await world.clock.sleep(60)
        session = await world.look(lambda tx: tx.sessions.get(key))
        assert session is not None
        assert session.deleted
        assert await world.look(lambda tx: tx.transcripts.entries(key)) == []
        assert await world.result(key) == "answer of a"
        assert await world.told() == [["a"]]
        with pytest.raises(NotFound):
            await world.send("are you there?", key)

    theatre.act(body)


@proves("4.send.4", "… and `delete` waits for it")
def test_cleanup_by_deletion_waits_until_an_accepted_message_is_answered(theatre: Theatre) -> None:
    async def body(world: World) -> None:
        key = await world.spawn("a", cleanup="delete")
        await world.sleep_until(0.5)
        await world.send("one more thing", key)
        await world.sleep_until(3)
        assert (await world.run(key)).phase.name == "cleanup_pending"
        assert await world.heard(key) == ["a", "one more thing"]
        await world.clock.sleep(60)
        assert (await world.run(key)).phase.name == "completed"
        assert await world.result(key) == "first"
        assert await world.told() == [["a"]]

    theatre.act(body, {"a": in_turns(works(1, "first"), works(4, "second"))})


# ---- archive ---------------------------------------------------------------------------------------------------------


@proves("2.phases.37")
@proves("3.limits.9")
@proves("6.cleanup.3", "`keep`: session and transcript stay")
@proves("6.sweep.1", "Run-mode runs are archived archiveAfterMinutes after they settled")
@pytest.mark.parametrize("after_s", [60.0, 3600.0])
def test_a_completed_run_is_archived_after_its_time(theatre: Theatre, after_s: float) -> None:
    async def body(world: World) -> None:
        key = await world.spawn("a", archive_after_s=after_s)
        await world.sleep_until(1 + after_s - 0.25)
        assert (await world.run(key)).phase.name == "completed"
        await world.sleep_until(1 + after_s + 0.25)
        assert (await world.run(key)).phase.name == "archived"
        assert await world.heard(key) == ["a"], "a kept session stays readable"

    theatre.act(body, {"a": works(1)})


@proves("6.sweep.4", "Never while a row from it is unread")
def test_a_run_is_not_archived_while_a_row_of_it_is_unread(theatre: Theatre) -> None:
    def complete_late(c: Commit, key: str) -> None:
        text = c.tx.texts.keep(key, "it worked after all")
        end = ev.Finished("text", text)
        effects.apply(c, key, ev.AttemptEnded(at=c.at, attempt=1, next_run_id=c.ids.unique(), end=end))

    async def breaks(stage: Stage) -> None:
        await stage.fail("it broke")

    async def body(world: World) -> None:
        key = await world.spawn("a")
        await world.sleep_until(1)
        await world.send("keep busy")
        await world.sleep_until(2)
        await world.engine.commit(lambda c: complete_late(c, key))
        await world.sleep_until(4000)
        assert (await world.run(key)).phase.name == "completed"
        await world.sleep_until(5000)
        assert await world.told() == [["a"], ["a"]]
        assert (await world.run(key)).phase.name == "archived"
        assert (await world.timeline(key))[-1] == ("CameDue", 4020.0)

    theatre.act(body, {"a": breaks, "main": in_turns(works(0), works(4000))})


# ---- programs --------------------------------------------------------------------------------------------------------


def read(key: str) -> Callable[[Commit], str | None]:
    return lambda c: control.read_result(c, key)


@proves("4.code.2")
def test_a_program_reads_its_result_once_and_again_for_free(theatre: Theatre) -> None:
    async def body(world: World) -> None:
        key = await world.spawn("a", PROGRAM)
        assert await world.engine.commit(read(key)) is None
        await world.sleep_until(2)
        assert (await world.run(key)).phase.name == "announcing"
        assert await world.engine.commit(read(key)) == "answer of a"
        run = await world.run(key)
        assert (run.phase.name, run.delivery) == ("completed", Delivered("direct"))
        assert await world.engine.commit(read(key)) == "answer of a"
        assert await world.run(key) == run
        assert await world.happened(key, ev.RowConsumed) == 1
        assert [who for _, who in world.drives] == ["a"], "no model answers in a program"

    theatre.act(body, {"a": works(1, "answer of a")})


@proves("4.code.4", "Unread for 30 min: completed_giveup, in undelivered, still readable by id")
def test_a_program_that_does_not_read_for_half_an_hour_finds_its_result_undelivered_and_readable(
    theatre: Theatre,
) -> None:
    async def body(world: World) -> None:
        key = await world.spawn("a", PROGRAM)
        await world.sleep_until(1799.75)
        assert (await world.run(key)).phase.name == "announcing"
        await world.sleep_until(1800.25)
        run = await world.run(key)
        assert run.phase.name == "completed_giveup"
        assert run.delivery == Undelivered("the program did not read it for 30 min")
        assert [row.source for row in await world.look(lambda tx: tx.inbox.undelivered())] == [key]
        assert await world.engine.commit(read(key)) == "answer of a"
        assert await world.look(lambda tx: tx.inbox.undelivered()) == []
        assert (await world.run(key)).phase.name == "completed"
        assert await world.engine.commit(read(key)) == "answer of a"

    theatre.act(body)


@proves("4.code.3", "A handle is re-attachable by id after a restart")
def test_a_result_of_another_process_is_read_by_its_key(theatre: Theatre) -> None:
    async def first(world: World) -> str:
        key = await world.spawn("a", PROGRAM)
        await world.clock.sleep(2)
        return key

    key = theatre.act(first, {"a": works(1, "answer of a")}, ends="crashed")

    async def second(world: World) -> None:
        assert await world.engine.commit(read(key)) == "answer of a"

    theatre.act(second)


# ---- undelivered -----------------------------------------------------------------------------------------------------


async def orphan(world: World) -> str:
    """A run whose conversation is deleted while it works, after it was given up."""
    await world.engine.commit(lambda c: spawn.open_conversation(c, OTHER))
    key = await world.spawn("a", OTHER)
    await world.clock.sleep(0.5)
    await world.engine.commit(lambda c: control.delete_session(c, OTHER))
    await world.clock.sleep(20)
    return key


@proves("2.phases.38", "completed_giveup: the result sits in undelivered until retried or dismissed")
@proves(
    "2.hops.10", "A missing requester is tried again 1, 2 (then 4, 8) s apart, at most `announce.maxRetries` 3 times"
)
@proves("2.hops.16", "Giving up leads to completed_giveup")
def test_a_result_that_nobody_is_left_to_hear_is_tried_three_times_and_then_undelivered(theatre: Theatre) -> None:
    async def body(world: World) -> None:
        key = await orphan(world)
        run = await world.run(key)
        assert (run.phase.name, run.delivery) == ("completed_giveup", Undelivered("no requester is left"))
        assert [row.source for row in await world.look(lambda tx: tx.inbox.undelivered())] == [key]
        assert [at for name, at in await world.timeline(key) if name == "CameDue"] == [2.0, 4.0, 8.0]
        assert await world.result(key) == "answer of a"

    theatre.act(body, {"a": works(1, "answer of a")})


def test_an_undelivered_result_can_be_dismissed_and_is_then_off_the_list(theatre: Theatre) -> None:
    async def body(world: World) -> None:
        key = await orphan(world)
        await world.engine.commit(lambda c: control.dismiss(c, key))
        assert await world.look(lambda tx: tx.inbox.undelivered()) == []
        assert (await world.run(key)).phase.name == "completed"
        for again in (control.dismiss, control.retry):
            with pytest.raises(Refused) as refusal:
                await world.engine.commit(partial(again, key=key))
            assert refusal.value.status == "done"

    theatre.act(body, {"a": works(1)})


def test_an_undelivered_result_that_is_retried_in_vain_is_undelivered_again(theatre: Theatre) -> None:
    async def body(world: World) -> None:
        key = await orphan(world)
        await world.engine.commit(lambda c: control.retry(c, key))
        assert (await world.run(key)).phase.name == "announce_deferred"
        assert await world.look(lambda tx: tx.inbox.undelivered()) == []
        await world.clock.sleep(20)
        assert (await world.run(key)).phase.name == "completed_giveup"
        assert [row.source for row in await world.look(lambda tx: tx.inbox.undelivered())] == [key]

    theatre.act(body, {"a": works(1)})


def test_an_undelivered_result_of_a_program_is_unread_again_after_a_retry(theatre: Theatre) -> None:
    async def body(world: World) -> None:
        key = await world.spawn("a", PROGRAM)
        await world.sleep_until(1900)
        await world.engine.commit(lambda c: control.retry(c, key))
        assert (await world.run(key)).phase.name == "announcing"
        await world.sleep_until(1900 + 1799.75)
        assert (await world.run(key)).phase.name == "announcing"
        await world.sleep_until(1900 + 1800.25)
        assert (await world.run(key)).phase.name == "completed_giveup"

    theatre.act(body)


@proves("2.hops.17", "A given-up result is kept `undelivered.retentionDays` 7")
def test_an_undelivered_result_leaves_the_list_by_itself_after_seven_days(theatre: Theatre) -> None:
    async def body(world: World) -> None:
        key = await orphan(world)
        await world.sleep_until(8 + 7 * 86400 - 1)
        assert (await world.run(key)).phase.name == "completed_giveup"
        await world.sleep_until(8 + 7 * 86400 + 1)
        assert (await world.run(key)).phase.name == "completed"
        assert await world.look(lambda tx: tx.inbox.undelivered()) == []

    theatre.act(body, {"a": works(1)})


def test_a_nested_result_of_a_requester_that_is_gone_goes_to_the_one_above(theatre: Theatre) -> None:
    async def boss(stage: Stage) -> None:
        await stage.spawn("slow")
        await stage.fail("it broke")

    async def body(world: World) -> None:
        key = await world.spawn("boss")
        await world.clock.sleep(60)
        assert await world.told() == [["boss"], ["slow"]]
        assert await world.told(key) == []
        assert await world.look(lambda tx: tx.inbox.unread(MAIN)) == []

    theatre.act(body, {"boss": boss, "slow": works(5)})
