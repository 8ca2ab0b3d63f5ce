"""Hop 2 when something is in the way: retries, giving up, order, and crashes."""

from functools import partial
from pathlib import Path

import pytest

from fledge.core.route import Address
from fledge.errors import NotFound, Refused
from fledge.orchestrator import outbox
from tests.orchestrator.outside import NEWS, OPS, Outside, entries, hear, played
from tests.orchestrator.stage import MAIN, Theatre, World
from tests.statements import proves


@pytest.fixture
def theatre(tmp_path: Path) -> Theatre:
    return Theatre(tmp_path)


@proves("2.hops.11", "Hop 2 is tried again on the same terms")
@pytest.mark.parametrize(
    ("failures", "tried"), [(0, [0.0]), (1, [0.0, 1.0]), (2, [0.0, 1.0, 3.0]), (3, [0.0, 1.0, 3.0, 7.0])]
)
def test_a_message_that_does_not_arrive_is_sent_again_1_2_and_4_s_later_under_the_same_id(
    theatre: Theatre, failures: int, tried: list[float]
) -> None:
    async def scene(world: World, outside: Outside) -> None:
        outside.down = {"ops": failures}
        await hear(world, OPS, "hello", "m-1")
        await world.clock.sleep(1000)
        assert [at for at, _ in outside.tried] == tried
        assert {key for _, key in outside.tried} == {f"reply:{MAIN}:2"}
        assert outside.heard == [("ops", "ann", "answer of main")]
        assert await world.look(lambda tx: tx.outbox.undelivered()) == []

    played(theatre, scene)


@proves("2.hops.5", "Hop 2, the reply to its channel, is an outbox: at least once, never changing the run")
def test_then_it_is_undelivered_and_no_run_and_no_transcript_has_changed(theatre: Theatre) -> None:
    async def scene(world: World, outside: Outside) -> None:
        outside.down = {"ops": 9}
        await hear(world, OPS, "hello", "m-1")
        await world.clock.sleep(1000)
        assert [at for at, _ in outside.tried] == [0.0, 1.0, 3.0, 7.0]
        (lost,) = await world.look(lambda tx: tx.outbox.undelivered())
        assert (lost.key, lost.error, lost.state) == (f"reply:{MAIN}:2", "ops is down", "undelivered")
        assert await entries(world) == ["user", "assistant"]
        assert await world.look(lambda tx: tx.inbox.unread(MAIN)) == []

    played(theatre, scene)


def test_it_can_be_retried_and_is_then_gone_from_the_list(theatre: Theatre) -> None:
    async def scene(world: World, outside: Outside) -> None:
        outside.down = {"ops": 5}
        await hear(world, OPS, "hello", "m-1")
        await world.sleep_until(100)
        await world.engine.commit(lambda c: outbox.retry(c, f"reply:{MAIN}:2"))
        await world.clock.sleep(100)
        assert [at for at, _ in outside.tried][4:] == [100.0, 101.0]
        assert outside.heard == [("ops", "ann", "answer of main")]
        assert await world.look(lambda tx: tx.outbox.undelivered()) == []

    played(theatre, scene)


def test_it_can_be_dismissed_and_is_dismissed_by_itself_after_a_week(theatre: Theatre) -> None:
    async def scene(world: World, outside: Outside) -> None:
        outside.down = {"ops": 8}
        await hear(world, OPS, "hello", "m-1")
        await world.clock.sleep(50)
        await hear(world, OPS, "hello again", "m-2")
        await world.clock.sleep(50)
        keys = [post.key for post in await world.look(lambda tx: tx.outbox.undelivered())]
        assert len(keys) == 2
        await world.engine.commit(lambda c: outbox.dismiss(c, keys[0]))
        assert [post.key for post in await world.look(lambda tx: tx.outbox.undelivered())] == keys[1:]
        await world.clock.sleep(7 * 86400.0)
        assert await world.look(lambda tx: tx.outbox.undelivered()) == []
        for act in (outbox.retry, outbox.dismiss):
            with pytest.raises(Refused, match=r"^reply:.* is dismissed$"):
                await world.engine.commit(partial(act, key=keys[1]))
            with pytest.raises(NotFound, match=r"^no post x$"):
                await world.engine.commit(partial(act, key="x"))

    played(theatre, scene)


def test_whoever_missed_messages_is_told_as_soon_as_they_can_be_reached_and_nobody_else_is(theatre: Theatre) -> None:
    async def scene(world: World, outside: Outside) -> None:
        outside.down = {"ops": 8}
        for n in range(2):
            await hear(world, OPS, "hello", f"m-{n}")
            await world.clock.sleep(50)
        await hear(world, Address("ops", "cyd"), "and I?", "m-3")
        await world.clock.sleep(50)
        assert outside.heard == [("ops", "cyd", "answer of main")]
        await hear(world, OPS, "are you there?", "m-4")
        await world.clock.sleep(50)
        assert outside.heard[1] == ("ops", "ann", "answer of main")
        _, told = outside.arrived[2]
        assert (told.to, told.about) == ("ann", "notice")
        assert told.text == (
            "2 messages to you could not be delivered earlier (fledge undelivered):\nanswer of main\nanswer of main"
        )
        await hear(world, OPS, "thanks", "m-5")
        await world.clock.sleep(50)
        assert [message.about for _, message in outside.arrived] == ["reply", "reply", "notice", "reply"]

    played(theatre, scene)


def test_they_are_told_again_of_what_they_missed_if_that_did_not_reach_them_either(theatre: Theatre) -> None:
    async def scene(world: World, outside: Outside) -> None:
        outside.down, outside.takes_s = {"ops": 4}, {"ops": 1.0}
        await hear(world, OPS, "hello", "m-1")
        await world.clock.sleep(50)
        assert outside.heard == []
        await hear(world, OPS, "are you there?", "m-2")
        while not outside.heard:
            await world.clock.sleep(0.1)
        outside.down = {"ops": 4}
        await world.clock.sleep(50)
        assert [message.about for _, message in outside.arrived] == ["reply"]
        await hear(world, OPS, "and now?", "m-3")
        await world.clock.sleep(50)
        assert [message.about for _, message in outside.arrived] == ["reply", "reply", "notice"]
        await hear(world, OPS, "thanks", "m-4")
        await world.clock.sleep(50)
        assert [message.about for _, message in outside.arrived] == ["reply", "reply", "notice", "reply"]

    played(theatre, scene)


def test_a_channel_that_is_down_delays_only_itself_and_keeps_its_order(theatre: Theatre) -> None:
    async def scene(world: World, outside: Outside) -> None:
        outside.down = {"ops": 2}
        for n, address in enumerate((OPS, NEWS, OPS, NEWS)):
            await hear(world, address, "hello", f"m-{n}")
            await world.clock.sleep(0.1)
        await world.clock.sleep(100)
        assert [(at, key.rsplit(":", 1)[1]) for at, key in outside.tried] == [
            *((0.0, "2"), (0.1, "4"), (0.3, "8")),
            *((1.0, "2"), (3.0, "2"), (3.0, "6")),
        ]

    played(theatre, scene)


def test_a_channel_that_hangs_delays_only_itself(theatre: Theatre) -> None:
    async def scene(world: World, outside: Outside) -> None:
        outside.takes_s = {"ops": 60.0}
        for n, address in enumerate((OPS, NEWS, OPS)):
            await hear(world, address, "hello", f"m-{n}")
        await world.spawn("child")
        await world.clock.sleep(500)
        assert [(at, message.channel) for at, message in outside.arrived][:3] == [
            (0.0, "news"),
            (60.0, "ops"),
            (120.0, "ops"),
        ]
        assert await world.told() == [["child"]]

    played(theatre, scene)


def test_a_server_that_says_when_is_left_alone_until_then(theatre: Theatre) -> None:
    async def scene(world: World, outside: Outside) -> None:
        outside.down, outside.wait_s = {"ops": 1}, 90.0
        await hear(world, OPS, "hello", "m-1")
        await world.clock.sleep(1000)
        assert [at for at, _ in outside.tried] == [0.0, 90.0]

    played(theatre, scene)


def test_a_server_that_says_never_in_time_is_given_up_at_once(theatre: Theatre) -> None:
    async def scene(world: World, outside: Outside) -> None:
        outside.down, outside.wait_s = {"ops": 1}, 1801.0
        await hear(world, OPS, "hello", "m-1")
        await world.clock.sleep(5000)
        assert [at for at, _ in outside.tried] == [0.0]
        assert len(await world.look(lambda tx: tx.outbox.undelivered())) == 1

    played(theatre, scene)


@proves("0.twice.6")
def test_after_a_crash_before_it_is_known_to_have_arrived_it_is_sent_again_under_the_same_id(
    theatre: Theatre,
) -> None:
    ids: list[str] = []

    async def before(world: World) -> None:
        outside = Outside(world)
        outside.takes_s = {"ops": 60.0}
        await hear(world, OPS, "hello", "m-1")
        await world.clock.sleep(5)
        ids.extend(key for _, key in outside.tried)

    theatre.act(before, ends="crashed")

    async def after(world: World, outside: Outside) -> None:
        await world.clock.sleep(100)
        ids.extend(message.id for _, message in outside.arrived)

    played(theatre, after)
    assert ids == [f"reply:{MAIN}:2"] * 2
