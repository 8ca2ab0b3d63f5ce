"""What every store promises of engines that share it, and of what each does outside the database."""

from msgspec.structs import replace

from fledge.core.cluster import Member
from fledge.store.base import Tx
from tests.core.samples import AT
from tests.store.bench import Bench

ONE = Member("one", "here", 7, AT, AT + 1, 15.0, settings={"web": "a"}, limits={"lanes.main": "4"})


class EngineConformance:
    """Engines and their errands."""

    def test_engines_are_as_they_joined_the_oldest_first(self, bench: Bench) -> None:
        two = replace(ONE, id="two", started_at=AT - 1, drives=False, lease_s=2.5, settings={}, limits={})
        two = replace(two, name="fledge worker", version="0.1", machine="boot pid:[1]", born="5")

        def job(tx: Tx) -> None:
            tx.engines.join(ONE)
            tx.engines.join(two)

        bench.do(job)
        assert bench.see(lambda tx: tx.engines.all()) == [two, ONE]
        again = replace(ONE, seen_at=AT + 9)
        bench.do(lambda tx: tx.engines.join(again))
        assert bench.see(lambda tx: tx.engines.all()) == [two, again]

    def test_an_engine_drains_and_leaves_alone(self, bench: Bench) -> None:
        two = replace(ONE, id="two")

        def job(tx: Tx) -> None:
            tx.engines.join(ONE)
            tx.engines.join(two)
            tx.engines.drain("one")

        bench.do(job)
        assert bench.see(lambda tx: tx.engines.all()) == [replace(ONE, drains=True), two]
        bench.do(lambda tx: tx.engines.leave("one"))
        assert bench.see(lambda tx: tx.engines.all()) == [two]

    def test_an_errand_is_one_engines_until_that_has_ended_it(self, bench: Bench) -> None:
        def job(tx: Tx) -> list[bool]:
            taken = [
                tx.errands.take("post:a", "one"),
                tx.errands.take("post:a", "two"),
                tx.errands.take("post:a", "one"),
            ]
            ended = [tx.errands.end("post:a", "two"), tx.errands.end("post:a", "one"), tx.errands.end("post:a", "one")]
            return [*taken, *ended, tx.errands.take("post:a", "two")]

        assert bench.do(job) == [True, False, True, False, True, False, True]

    def test_errands_of_others_are_known_and_those_of_the_dead_are_dropped(self, bench: Bench) -> None:
        def job(tx: Tx) -> int:
            for name, owner in (("a", "one"), ("b", "two"), ("c", "three"), ("d", "one")):
                tx.errands.take(name, owner)
            return tx.errands.drop_all_but(["one", "two"])

        assert bench.do(job) == 1
        assert bench.see(lambda tx: tx.errands.of("one")) == ["a", "d"]
        assert bench.see(lambda tx: tx.errands.of_others("one")) == {"b"}
