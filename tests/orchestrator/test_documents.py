"""When agents were at work, as commits remember it, and what that means for documents: also over kills and crashes."""

from pathlib import Path

import pytest

from fledge.core.documents import SLACK_S, Version
from fledge.orchestrator import transcripts
from fledge.store.base import Tx
from fledge.testing import START, Script, Stage
from tests.orchestrator.stage import MAIN, Theatre, World
from tests.statements import proves

WORK = "/home/me/work"


@pytest.fixture
def theatre(tmp_path: Path) -> Theatre:
    return Theatre(tmp_path)


def writes(seconds: float, workspace: str = WORK, begin_after: float = 0.0) -> Script:
    """A driver that may write in a workspace from its first step on, and works so long."""

    async def script(stage: Stage) -> None:
        await stage.sleep(begin_after)
        await stage.engine.commit(lambda c: c.tx.drivers.begin_work(stage.session, workspace, c.at))
        await stage.sleep(seconds)
        await stage.say("done")

    return script


async def verdict(world: World, changed_at: float, workspace: str = WORK, name: str = "SOUL.md") -> bool:
    """Whether a version that changed then is taken in now; another version each time."""
    found = {name: Version(f"changed at {changed_at}", START + changed_at)}
    return not await world.engine.commit(lambda c: transcripts.judge_documents(c, MAIN, workspace, found))


def spans(tx: Tx) -> list[tuple[float, float]]:
    return [(begun - START, ended - START) for begun, ended in transcripts.known_workspace(tx, WORK).spans]


@proves("3.prompt.21")
@proves("3.prompt.22")
def test_an_agent_is_at_work_from_its_first_step_with_tools_to_the_end_of_its_drive(theatre: Theatre) -> None:
    async def body(world: World) -> None:
        await world.spawn("a")
        await world.sleep_until(20)
        assert await world.look(lambda tx: tx.drivers.at_work()) == [(WORK, START + 10)]
        assert [await verdict(world, at) for at in (10 - SLACK_S - 1, 10, 19)] == [True, False, False]
        await world.sleep_until(40)
        assert await world.look(lambda tx: (tx.drivers.at_work(), spans(tx))) == ([], [(10.0, 30.0)])
        assert [await verdict(world, at) for at in (9 - SLACK_S, 15, 31 + SLACK_S)] == [True, False, True]

    theatre.act(body, {"a": writes(20, begin_after=10)})


@pytest.mark.parametrize(
    ("worked_in", "taken"),
    [(WORK, False), ("/home/me", False), ("/", False), ("/home/me/work/sub", True), ("/home/me/other", True)],
)
def test_whoever_works_above_can_write_below_and_not_the_other_way_round(
    theatre: Theatre, worked_in: str, taken: bool
) -> None:
    async def body(world: World) -> None:
        await world.spawn("a")
        await world.sleep_until(5)
        assert await verdict(world, 5) is taken
        await world.sleep_until(60)
        assert await verdict(world, 6) is taken

    theatre.act(body, {"a": writes(20, worked_in)})


def test_a_kill_ends_the_work_when_its_driver_is_gone(theatre: Theatre) -> None:
    async def body(world: World) -> None:
        key = await world.spawn("a")
        await world.sleep_until(10)
        await world.kill(key)
        await world.sleep_until(60)
        assert await world.look(lambda tx: (tx.drivers.at_work(), spans(tx))) == ([], [(0.0, 10.0)])

    theatre.act(body, {"a": writes(100)})


def test_after_a_crash_an_agent_counts_as_at_work_until_somebody_took_over(theatre: Theatre) -> None:
    async def before(world: World) -> None:
        await world.spawn("a")
        await world.sleep_until(10)

    async def after(world: World) -> None:
        began = world.at()
        await world.sleep_until(began + 60)
        (first, *_) = await world.look(spans)
        assert first == (0.0, began)
        assert [await verdict(world, at) for at in (5, began, began + 50)] == [False, False, True]

    theatre.act(before, {"a": writes(100)}, ends="crashed")
    theatre.act(after, {"a": writes(1)})


def test_a_version_that_was_left_out_stays_so_and_is_told_once_until_it_is_accepted_or_changed(
    theatre: Theatre,
) -> None:
    found = {"SOUL.md": Version("evil", START + 5), "USER.md": Version("kind", START - 100)}

    async def body(world: World) -> None:
        await world.spawn("a")
        await world.sleep_until(6)
        for _ in range(2):
            out = await world.engine.commit(lambda c: transcripts.judge_documents(c, MAIN, WORK, found))
            assert out == {"SOUL.md"}
        assert await world.look(lambda tx: transcripts.left_out_documents(tx, WORK)) == ["SOUL.md"]
        taken = await world.engine.commit(
            lambda c: transcripts.accept_documents(c, WORK, {"SOUL.md": "evil", "USER.md": "kind"})
        )
        assert taken == ["SOUL.md"]
        assert await world.engine.commit(lambda c: transcripts.judge_documents(c, MAIN, WORK, found)) == frozenset()
        assert await world.look(lambda tx: transcripts.left_out_documents(tx, WORK)) == []

    theatre.act(body, {"a": writes(20)})
