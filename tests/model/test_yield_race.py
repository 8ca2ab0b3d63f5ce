"""The race between a yield and the ends it waits for, in every order there is.

An orchestrator O has children at work. One moment O yields, at others its children settle, each in one of all ways, and
perhaps a message comes in between. Every order of these commits is played, and after each of them O waits exactly as
long as a plain reading of the rule says, or not at all where there is nothing to wait for; afterwards everything comes
to rest, and O has read every answer once.
"""

import itertools
from collections.abc import Iterator
from contextlib import closing

import pytest

from fledge.core.events import YieldCondition
from fledge.core.policy import NOTHING_TO_WAIT_FOR
from fledge.core.run import Queued, Waiting
from fledge.errors import Refused
from fledge.orchestrator.turns import Drive
from tests.orchestrator.scene import Scene
from tests.statements import proves

WAYS = ("text", "silent", "error", "kill", "plan")
"""How a child settles: with an answer, without one, broken, killed, or with a plan that awaits its answer."""
TELLS = ("text", "error", "plan")
"""Those that leave something to read."""
WIDE = {"main": 1, "subagent": 9}


class Race:
    """O with its children, all at work, and what a plain reading of the rule says about O's wait."""

    def __init__(self, scene: Scene, ways: tuple[str, ...], asked: YieldCondition) -> None:
        self.scene, self.ways, self.asked = scene, ways, asked
        main = scene.main()
        self.o = scene.begin(main)
        self.children = [scene.begin(self.o, plan=way == "plan") for way in ways]
        scene.finish(main, "it is under way")
        self.settled: list[int] = []
        self.due: int | None = None
        """How many must have settled for O's wait to be over; None before it yields."""
        self.goes_on = False
        """There was nothing to wait for when O yielded: its turn went on."""

    def move(self, name: str) -> None:
        match name:
            case "yield":
                self._yield()
            case "send":
                self.scene.send(self.o.session)
                self._read_aside()
            case _:
                self._settle(int(name))

    def _yield(self) -> None:
        unread = sum(self.ways[at] in TELLS for at in self.settled)
        to_come = len(self.ways) - len(self.settled)
        wanted = to_come + unread if self.asked == "all" else 1 if self.asked == "any" else self.asked
        # What waits unread counts as having come since; more than can still come is not waited for.
        self.due = len(self.settled) - unread + min(wanted, to_come + unread)
        if to_come + unread:
            self.goes_on = self.scene.wait(self.o, self.asked) == "on"
        else:
            with pytest.raises(Refused, match=NOTHING_TO_WAIT_FOR):
                self.scene.wait(self.o, self.asked)
            self.goes_on = True
        self._read_aside()

    def _read_aside(self) -> None:
        """A message gets a turn of its own; then the wait goes on, or is over."""
        while isinstance(self.phase, Queued) and self.phase.serving is not None:
            self.scene.finish(self.scene.start(self.o.session), "aside")

    def _settle(self, at: int) -> None:
        child = self.children[at]
        match self.ways[at]:
            case "silent":
                self.scene.finish(child, "NO_REPLY")
            case "error":
                self.scene.fail(child)
            case "kill":
                self.scene.kill(child.session)
                self.scene.exit(child)
            case _:
                self.scene.finish(child, "words")
        self.settled.append(at)

    @property
    def phase(self) -> object:
        return self.scene.run(self.o.session).phase

    @property
    def must_wait(self) -> bool:
        return len(self.settled) < len(self.ways) and (self.due is None or len(self.settled) < self.due)


def orders(ways: tuple[str, ...], *others: str) -> Iterator[tuple[str, ...]]:
    return itertools.permutations([*map(str, range(len(ways))), "yield", *others])


def play(ways: tuple[str, ...], asked: YieldCondition, order: tuple[str, ...]) -> None:
    with closing(Scene(widths=WIDE)) as scene:
        race = Race(scene, ways, asked)
        is_over = False
        for name in order:
            if name == "send" and is_over:
                continue  # it would join the attempt that is due, or goes on
            race.move(name)
            scene.check()
            if name == "yield":
                assert race.goes_on != race.must_wait, (order, race.phase)
            if race.due is not None and not is_over:
                assert isinstance(race.phase, Waiting) == race.must_wait, (order, race.phase)
                is_over = not race.must_wait
        assert is_over, order
        # A wake ends a wait: where there was nothing to wait for, none is spent.
        assert scene.run(race.o.session).wakes == (0 if race.goes_on else 1)
        read = race.o if race.goes_on else scene.start(race.o.session)
        while scene.finish(read, "read it") == "on":
            continue
        _come_to_rest(scene, race, read)


def _come_to_rest(scene: Scene, race: Race, read: Drive) -> None:
    """Everything settles, and every answer is in O's transcript once; plans that nobody answered are killed, so that
    what comes after an approval is not in the way."""
    for at, child in enumerate(race.children):
        if race.ways[at] == "plan":
            scene.kill(child.session)
    scene.settle()
    told = scene.told(read.session)
    assert sorted(told) == sorted(
        child.session for child, way in zip(race.children, race.ways, strict=True) if way in TELLS
    )


@proves("4.yield.4")
@pytest.mark.parametrize("asked", ["all", "any", 2], ids=str)
@pytest.mark.parametrize("ways", itertools.combinations_with_replacement(WAYS, 2), ids="-".join)
def test_a_yield_and_two_ends_in_every_order(ways: tuple[str, ...], asked: YieldCondition) -> None:
    for order in orders(ways):
        play(ways, asked, order)


@proves("4.yield.4")
@pytest.mark.parametrize("asked", ["all", "any", 2, 3], ids=str)
def test_a_yield_and_three_ends_in_every_order(asked: YieldCondition) -> None:
    ways = ("text", "silent", "text")
    for order in orders(ways):
        play(ways, asked, order)


@proves("4.yield.4")
@pytest.mark.parametrize("asked", ["all", "any"], ids=str)
@pytest.mark.parametrize("way", WAYS)
def test_a_yield_an_end_and_a_message_in_every_order(way: str, asked: YieldCondition) -> None:
    for order in orders((way, "text"), "send"):
        play((way, "text"), asked, order)
