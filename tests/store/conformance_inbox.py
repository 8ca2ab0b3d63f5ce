"""What every store promises of inboxes."""

from typing import Final, get_args

import pytest

from fledge.core.run import Path
from fledge.errors import FledgeError, StoreError
from fledge.store.base import COMPLETIONS, InboxRow, InboxRowKind, RowState, Tx
from fledge.store.inbox import KEPT
from tests.core.samples import AT
from tests.statements import proves
from tests.store.bench import MAIN, Bench, admit, close_row, conversation

RUN: Final = "agent:main:subagent:r"
KINDS: Final[tuple[InboxRowKind, ...]] = get_args(InboxRowKind)
STATES: Final[tuple[RowState, ...]] = tuple(state for state in get_args(RowState) if state != "dropped")
"""Of completions: they are never dropped."""
PATHS: Final[tuple[Path, ...]] = get_args(Path)
CLOSED: Final[tuple[RowState, ...]] = ("consumed", "suppressed", "void", "dismissed")


def send(tx: Tx, *keys: str, to: str = MAIN) -> None:
    """Put messages into an inbox."""
    for key in keys:
        assert tx.inbox.put(key, to, "send", "someone", f"says {key}", AT)


def announce(tx: Tx, *keys: str, to: str | None = MAIN, kind: InboxRowKind = "outcome", run: str = RUN) -> None:
    """Put completions into an inbox."""
    for key in keys:
        assert tx.inbox.put(key, to, kind, run, "{}", AT)


def put_in(tx: Tx, key: str, state: RowState) -> None:
    """Put a completion that has come to this state."""
    announce(tx, key)
    if state != "unread":
        assert close_row(tx, key, state, AT)


class InboxConformance:
    """Inboxes."""

    @pytest.mark.parametrize("kind", KINDS)
    def test_a_suppressed_row_is_unread_again_in_its_old_place_and_no_other_row_is(
        self, bench: Bench, kind: InboxRowKind
    ) -> None:
        def put(tx: Tx) -> None:
            send(tx, "before")
            assert tx.inbox.put("row", MAIN, kind, RUN, "{}", AT)
            send(tx, "behind")
            assert tx.inbox.suppress("row", AT)
            assert tx.inbox.void("before", AT)

        bench.do(put)
        assert bench.see(lambda tx: [row.key for row in tx.inbox.suppressed(MAIN)]) == ["row"]
        bench.reopen()

        def revive(tx: Tx) -> list[str]:
            assert [row.key for row in tx.inbox.unread(MAIN)] == ["behind"]
            for key in ("row", "before", "nobody"):
                tx.inbox.revive(key)
            return [row.key for row in tx.inbox.unread(MAIN)]

        assert bench.do(revive) == ["row", "behind"]
        assert bench.see(lambda tx: tx.inbox.suppressed(MAIN)) == []
        assert bench.do(lambda tx: tx.inbox.consume("row", AT))
        bench.do(lambda tx: tx.inbox.revive("row"))
        assert bench.see(lambda tx: [row.key for row in tx.inbox.unread(MAIN)]) == ["behind"]

    def test_a_row_that_is_said_to_be_new_is_put_unlooked_and_refused_if_its_key_was_used(self, bench: Bench) -> None:
        def put(tx: Tx) -> list[str]:
            conversation(tx, "talk")
            tx.inbox.open("talk")
            assert tx.inbox.unread("talk") == []
            assert tx.inbox.put("row", "talk", "send", None, "x", AT, is_new=True)
            return [row.key for row in tx.inbox.unread("talk")]

        assert bench.do(put) == ["row"]
        for _ in range(2):
            with pytest.raises(FledgeError):
                bench.do(lambda tx: tx.inbox.put("row", "talk", "send", None, "y", AT, is_new=True))
            assert bench.see(lambda tx: [row.body for row in tx.inbox.unread("talk")]) == ["x"]
            bench.reopen()

    @pytest.mark.parametrize("between", ["nothing", "other commits", "a failed commit", "a restart"])
    def test_a_session_that_was_just_opened_announces_each_completion_once(self, bench: Bench, between: str) -> None:
        def put(tx: Tx, key: str, body: str) -> bool:
            return tx.inbox.put(key, MAIN, "outcome", RUN, body, AT)

        def fail(tx: Tx) -> None:
            tx.inbox.open(RUN)
            put(tx, "again", "undone")
            raise KeyError

        bench.do(lambda tx: tx.inbox.open(RUN))
        assert bench.do(lambda tx: put(tx, "first", "1"))
        match between:
            case "other commits":
                bench.do(lambda tx: tx.inbox.consume("first", AT))
            case "a failed commit":
                with pytest.raises(KeyError):
                    bench.do(fail)
            case "a restart":
                bench.reopen()
        assert not bench.do(lambda tx: put(tx, "first", "2"))
        assert bench.do(lambda tx: put(tx, "again", "3"))
        assert not bench.do(lambda tx: put(tx, "again", "4"))
        assert bench.see(lambda tx: [row and row.body for row in map(tx.inbox.get, ("first", "again"))]) == ["1", "3"]

    def test_an_inbox_has_unread_rows_until_the_last_is_closed(self, bench: Bench) -> None:
        def work(tx: Tx) -> list[bool]:
            conversation(tx, "talk")
            found = [tx.inbox.has_unread("talk")]
            assert tx.inbox.put("one", "talk", "send", None, "x", AT)
            assert tx.inbox.put("two", "talk", "notice", None, "y", AT)
            found.append(tx.inbox.has_unread("talk"))
            assert tx.inbox.consume("one", AT)
            found.append(tx.inbox.has_unread("talk"))
            assert tx.inbox.void("two", AT)
            found.append(tx.inbox.has_unread("talk"))
            return found

        assert bench.do(work) == [False, True, True, False]
        assert not bench.see(lambda tx: tx.inbox.has_unread("talk"))
        bench.do(lambda tx: tx.inbox.put("three", "talk", "send", None, "z", AT))
        bench.reopen()
        assert bench.see(lambda tx: tx.inbox.has_unread("talk"))

    def test_a_waiting_row_is_measured_once_until_it_says_something_else(self, bench: Bench) -> None:
        def measured(tx: Tx, length: int) -> int:
            (row,) = tx.inbox.unread("talk")
            return tx.inbox.measured(row, lambda: length)

        def work(tx: Tx) -> list[int]:
            conversation(tx, "talk")
            tx.inbox.put("row", "talk", "send", None, "x", AT)
            found = [measured(tx, 1), measured(tx, 2)]
            tx.inbox.rewrite("row", "y", None)
            return [*found, measured(tx, 3), measured(tx, 4)]

        assert bench.do(work) == [1, 1, 3, 3]

    def test_a_row_is_as_it_was_put(self, bench: Bench) -> None:
        def job(tx: Tx) -> list[bool]:
            return [
                tx.inbox.put("plain", MAIN, "notice", None, "words é\x00", AT),
                tx.inbox.put("whole", MAIN, "plan", RUN, "{}", AT + 1, text="t-1", path="steered", origin="chat"),
                tx.inbox.put("nobody's", None, "late", RUN, "{}", AT + 2, path="queued"),
            ]

        assert bench.do(job) == [True, True, True]
        plain = bench.see(lambda tx: tx.inbox.get("plain"))
        assert plain is not None
        first = plain.seq
        assert plain == InboxRow(first, "plain", MAIN, "notice", None, "", "unread", "direct", "words é\x00", None, AT)
        whole, nobodys = bench.see(lambda tx: [tx.inbox.get("whole"), tx.inbox.get("nobody's")])
        assert whole is not None
        assert nobodys is not None
        assert first < whole.seq < nobodys.seq
        assert whole == InboxRow(
            whole.seq, "whole", MAIN, "plan", RUN, "chat", "unread", "steered", "{}", "t-1", arrived_at=AT + 1
        )
        assert nobodys == InboxRow(
            nobodys.seq, "nobody's", None, "late", RUN, "", "unread", "queued", "{}", None, arrived_at=AT + 2
        )
        assert bench.see(lambda tx: tx.inbox.get("unknown")) is None

    @pytest.mark.parametrize("kind", KINDS)
    def test_a_row_of_every_kind_says_whether_it_announces(self, bench: Bench, kind: InboxRowKind) -> None:
        bench.do(lambda tx: tx.inbox.put("row", MAIN, kind, RUN, "{}", AT))
        row = bench.see(lambda tx: tx.inbox.get("row"))
        assert row is not None
        assert row.kind == kind
        assert row.announces == (kind if kind in COMPLETIONS else None)
        counts = {"send": (0, 1)}.get(kind, (1, 0) if kind in COMPLETIONS else (0, 0))
        assert bench.see(lambda tx: tx.inbox.count_unread(MAIN)) == counts

    @proves("0.twice.1", "There is one inbox row per child, run and kind, unique by key in the database")
    @pytest.mark.parametrize("state", STATES)
    def test_a_row_put_twice_is_one_row_whatever_became_of_the_first(self, bench: Bench, state: RowState) -> None:
        bench.do(lambda tx: put_in(tx, "row", state))
        before = bench.see(lambda tx: tx.inbox.get("row"))
        assert not bench.do(lambda tx: tx.inbox.put("row", "elsewhere", "send", None, "other", AT + 9))
        assert bench.see(lambda tx: tx.inbox.get("row")) == before
        assert bench.see(lambda tx: tx.inbox.unread("elsewhere")) == []
        assert len(bench.see(lambda tx: tx.inbox.unread(MAIN))) == (1 if state == "unread" else 0)

    @proves("0.twice.1")
    def test_of_many_puts_of_one_key_at_once_exactly_one_is_told_that_it_was_the_first(self, bench: Bench) -> None:
        answers = bench.do_at_once([lambda tx: tx.inbox.put("row", MAIN, "send", None, "x", AT)] * 20)
        assert sorted(map(bool, answers)) == [False] * 19 + [True]
        assert len(bench.see(lambda tx: tx.inbox.unread(MAIN))) == 1

    def test_unread_rows_come_in_order_of_arrival_whatever_their_keys_and_times(self, bench: Bench) -> None:
        def job(tx: Tx) -> None:
            for n, key in enumerate(("z", "a", "m", "b")):
                tx.inbox.put(key, MAIN, "send", None, key, AT - n)
                tx.inbox.put(f"{key} aside", "other", "send", None, key, AT)
            tx.inbox.consume("a", AT)

        bench.do(job)

        def unread(session: str, limit: int) -> list[str]:
            return [row.key for row in bench.see(lambda tx: tx.inbox.unread(session, limit))]

        assert [row.key for row in bench.see(lambda tx: tx.inbox.unread(MAIN))] == ["z", "m", "b"]
        assert unread(MAIN, 3) == ["z", "m", "b"]
        assert unread(MAIN, 2) == ["z", "m"]
        assert unread(MAIN, 0) == []
        assert unread("other", 9) == ["z aside", "a aside", "m aside", "b aside"]
        assert unread("nobody", 9) == []

    def test_unread_rows_by_child_are_messages_then_completions_in_creation_order_then_the_wake(
        self, bench: Bench
    ) -> None:
        def job(tx: Tx) -> None:
            for run in ("older", "middle", "younger"):
                admit(tx, run)
            announce(tx, "of younger", run="younger")
            tx.inbox.put("wake", MAIN, "wake", None, "up", AT)
            tx.inbox.put("from older", MAIN, "send", "older", "hello", AT)
            announce(tx, "of forgotten", run="nobody knows")
            announce(tx, "of older", run="older")
            announce(tx, "plan of younger", run="younger", kind="plan")
            announce(tx, "read", run="middle")
            announce(tx, "aside", run="middle", to="other")
            send(tx, "said")
            tx.inbox.consume("read", AT)

        bench.do(job)

        def unread(session: str, limit: int) -> list[str]:
            return [row.key for row in bench.see(lambda tx: tx.inbox.unread_by_child(session, limit))]

        told = ["of forgotten", "of older", "of younger", "plan of younger"]
        assert unread(MAIN, 99) == ["from older", "said", *told, "wake"]
        assert unread(MAIN, 4) == ["from older", "said", *told[:2]]
        assert unread("other", 99) == ["aside"]
        assert unread("empty", 99) == []

    def test_the_newest_unread_row_is_the_one_that_arrived_last_and_still_waits(self, bench: Bench) -> None:
        def job(tx: Tx) -> list[list[str]]:
            seen = [tx.inbox.newest_unread(MAIN)]
            send(tx, "a", "b", "c")
            send(tx, "d", to="other")
            seen.append(tx.inbox.newest_unread(MAIN))
            tx.inbox.consume("c", AT)
            seen.append(tx.inbox.newest_unread(MAIN))
            return [[row.key for row in rows] for rows in seen]

        assert bench.do(job) == [[], ["c"], ["b"]]

    def test_unread_completions_and_sends_are_counted_apart_and_nothing_else_is(self, bench: Bench) -> None:
        def job(tx: Tx) -> list[tuple[int, int]]:
            counts = [tx.inbox.count_unread(MAIN)]
            for kind in KINDS:
                tx.inbox.put(kind, MAIN, kind, RUN, "{}", AT)
            send(tx, "another")
            announce(tx, "aside", to="other")
            counts.append(tx.inbox.count_unread(MAIN))
            tx.inbox.give_up("late", AT)
            tx.inbox.consume("another", AT)
            counts.append(tx.inbox.count_unread(MAIN))
            return counts

        assert bench.do(job) == [(0, 0), (4, 2), (3, 1)]

    def test_rows_of_a_run_are_its_completions_that_are_unread_or_undelivered(self, bench: Bench) -> None:
        def job(tx: Tx) -> None:
            for kind in KINDS:
                tx.inbox.put(kind, MAIN, kind, RUN, "{}", AT)
            for state in STATES:
                put_in(tx, state, state)
            announce(tx, "nobody's", to=None)
            announce(tx, "another's", run="other")

        bench.do(job)
        open_rows = ["outcome", "plan", "expired", "late", "unread", "undelivered", "nobody's"]
        assert [row.key for row in bench.see(lambda tx: tx.inbox.of_run(RUN))] == open_rows
        assert [row.key for row in bench.see(lambda tx: tx.inbox.of_run("other"))] == ["another's"]
        assert bench.see(lambda tx: tx.inbox.of_run("nobody")) == []

    def test_undelivered_lists_every_row_that_was_given_up_on_oldest_first(self, bench: Bench) -> None:
        def job(tx: Tx) -> None:
            announce(tx, "z")
            announce(tx, "unread")
            announce(tx, "a", to=None, run="other")
            for key in ("a", "z"):
                tx.inbox.give_up(key, AT)

        bench.do(job)
        assert [row.key for row in bench.see(lambda tx: tx.inbox.undelivered())] == ["z", "a"]

    @proves("0.lost.2")
    @pytest.mark.parametrize("start", ["unread", "undelivered"])
    def test_an_open_row_moves_to_any_state_and_a_closed_one_to_none(self, bench: Bench, start: RowState) -> None:
        def job(tx: Tx) -> None:
            for state in STATES:
                put_in(tx, state, start)
                assert close_row(tx, state, state, AT + 1), state
                row = tx.inbox.get(state)
                assert row is not None
                assert row.state == state
            for closed in CLOSED:
                for state in STATES:
                    assert not close_row(tx, closed, state, AT + 2), (closed, state)
                    row = tx.inbox.get(closed)
                    assert row is not None
                    assert row.state == closed
            assert not tx.inbox.consume("never put", AT)

        bench.do(job)
        assert [row.key for row in bench.see(lambda tx: tx.inbox.unread(MAIN))] == ["unread"]
        assert [row.key for row in bench.see(lambda tx: tx.inbox.undelivered())] == ["undelivered"]

    @proves("0.twice.4", "A row is consumed by compare-and-set, in the commit that appends it to the transcript")
    def test_a_row_is_consumed_once_even_where_many_try_at_once(self, bench: Bench) -> None:
        bench.do(lambda tx: send(tx, "row"))
        answers = bench.do_at_once([lambda tx: tx.inbox.consume("row", AT)] * 20)
        assert answers == [True] + [False] * 19

    def test_a_row_that_was_given_up_is_reopened_in_its_old_place_and_can_be_consumed(self, bench: Bench) -> None:
        def job(tx: Tx) -> None:
            announce(tx, "a", "b", "c")
            before = tx.inbox.get("b")
            assert tx.inbox.give_up("b", AT)
            assert [row.key for row in tx.inbox.unread(MAIN)] == ["a", "c"]
            assert tx.inbox.reopen("b")
            assert tx.inbox.get("b") == before
            assert [row.key for row in tx.inbox.unread(MAIN)] == ["a", "b", "c"]
            assert tx.inbox.undelivered() == []
            assert tx.inbox.consume("b", AT + 2)
            assert not tx.inbox.reopen("b")

        bench.do(job)
        assert [row.key for row in bench.see(lambda tx: tx.inbox.unread(MAIN))] == ["a", "c"]

    def test_a_readdressed_row_is_the_same_row_in_another_inbox(self, bench: Bench) -> None:
        def job(tx: Tx) -> None:
            send(tx, "before", to="other")
            assert tx.inbox.put("row", MAIN, "outcome", RUN, "{}", AT, text="t", path="steered", origin="chat")
            send(tx, "after", to="other")
            row = tx.inbox.get("row")
            assert row is not None
            tx.inbox.readdress("row", "other", "queued")
            assert tx.inbox.unread(MAIN) == []
            assert [one.key for one in tx.inbox.unread("other")] == ["before", "row", "after"]
            assert tx.inbox.get("row") == InboxRow(
                row.seq, "row", "other", "outcome", RUN, "chat", "unread", "queued", "{}", "t", arrived_at=AT
            )
            tx.inbox.readdress("row", None)
            nobodys = tx.inbox.get("row")
            assert nobodys is not None
            assert (nobodys.session, nobodys.path, nobodys.state) == (None, "direct", "unread")
            assert [one.key for one in tx.inbox.unread("other")] == ["before", "after"]
            tx.inbox.readdress("row", MAIN)
            assert [one.key for one in tx.inbox.unread(MAIN)] == ["row"]
            tx.inbox.readdress("never put", MAIN)
            assert tx.inbox.get("never put") is None

        bench.do(job)

    def test_a_rewritten_row_says_something_else_and_is_otherwise_the_same(self, bench: Bench) -> None:
        def job(tx: Tx) -> None:
            announce(tx, "row", "another")
            row = tx.inbox.get("row")
            assert row is not None
            tx.inbox.rewrite("row", '{"new":1}', "t-2")
            assert tx.inbox.get("row") == InboxRow(
                row.seq, "row", MAIN, "outcome", RUN, "", "unread", "direct", '{"new":1}', "t-2", arrived_at=AT
            )
            tx.inbox.rewrite("row", "{}", None)
            assert tx.inbox.get("row") == row
            another = tx.inbox.get("another")
            assert another is not None
            assert (another.body, another.text) == ("{}", None)
            tx.inbox.rewrite("never put", "x", None)
            assert tx.inbox.get("never put") is None

        bench.do(job)

    @pytest.mark.parametrize("state", [state for state in STATES if state != "unread"])
    def test_only_an_unread_row_is_readdressed_or_rewritten(self, bench: Bench, state: RowState) -> None:
        def job(tx: Tx) -> None:
            put_in(tx, "row", state)
            before = tx.inbox.get("row")
            tx.inbox.readdress("row", "other", "queued")
            assert tx.inbox.get("row") == before
            tx.inbox.rewrite("row", "other words", "t-9")
            assert tx.inbox.get("row") == before

        bench.do(job)
        assert bench.see(lambda tx: tx.inbox.unread("other")) == []

    def test_waiting_rows_are_counted_by_kind_and_origin(self, bench: Bench) -> None:
        def job(tx: Tx) -> list[int]:
            send(tx, "a", "b", "read")
            send(tx, "another's", to="other")
            tx.inbox.put("mail", MAIN, "send", None, "x", AT, origin="mail")
            tx.inbox.put("notice", MAIN, "notice", None, "x", AT)
            tx.inbox.consume("read", AT)
            cases: list[tuple[str, InboxRowKind, str]] = [
                (MAIN, "send", ""),
                (MAIN, "send", "mail"),
                (MAIN, "notice", ""),
                (MAIN, "notice", "mail"),
                ("nobody", "send", ""),
            ]
            return [tx.inbox.count_waiting(*case) for case in cases]

        assert bench.do(job) == [2, 1, 1, 0, 0]

    def test_a_dropped_message_waits_no_more_and_its_line_is_told_once(self, bench: Bench) -> None:
        def job(tx: Tx) -> None:
            send(tx, "a", "b", "c", "read")
            tx.inbox.put("mail", MAIN, "send", None, "x", AT, origin="mail")
            tx.inbox.consume("read", AT)
            tx.inbox.drop("a", None)
            tx.inbox.drop("b", AT + 1)
            tx.inbox.drop("mail", None)
            tx.inbox.drop("read", None)
            tx.inbox.drop("never put", None)
            assert [row.key for row in tx.inbox.unread(MAIN)] == ["c"]
            assert tx.inbox.count_unread(MAIN) == (0, 1)

        bench.do(job)
        rows = bench.see(lambda tx: [tx.inbox.get(key) for key in ("a", "b", "read")])
        assert [row and (row.state, row.closed_at) for row in rows] == [
            ("dropped", None),
            ("dropped", AT + 1),
            ("consumed", AT),
        ]

        def lines(tx: Tx) -> list[list[str]]:
            return [[row.key for row in tx.inbox.dropped(MAIN, origin)] for origin in ("", "mail", "chat")]

        assert bench.see(lines) == [["a"], ["mail"], []]

        def tell(tx: Tx) -> None:
            tx.inbox.line_told("a", AT + 2)
            tx.inbox.line_told("c", AT + 2)

        bench.do(tell)
        assert bench.see(lines) == [[], ["mail"], []]
        assert bench.see(lambda tx: [row.closed_at for row in tx.inbox.unread(MAIN)]) == [None]
        assert not bench.do(lambda tx: tx.inbox.reopen("a"))
        assert not bench.do(lambda tx: tx.inbox.put("a", MAIN, "send", None, "again", AT + 3))

    def test_a_completion_is_never_dropped(self, bench: Bench) -> None:
        bench.do(lambda tx: announce(tx, "row"))
        with pytest.raises(StoreError):
            bench.do(lambda tx: tx.inbox.drop("row", None))
        assert [row.key for row in bench.see(lambda tx: tx.inbox.unread(MAIN))] == ["row"]

    def test_a_trace_may_be_recorded_many_times_for_one_row(self, bench: Bench) -> None:
        def job(tx: Tx) -> None:
            announce(tx, "row")
            before = tx.inbox.get("row")
            for at in range(2):
                tx.deliveries.note("row", RUN, AT - at, f'{{"path":"{at}"}}')
            tx.deliveries.note("row", "another", AT, "{}")
            assert tx.inbox.get("row") == before

        bench.do(job)
        assert bench.see(lambda tx: tx.deliveries.of(RUN)) == [(AT, '{"path":"0"}'), (AT - 1, '{"path":"1"}')]
        assert bench.see(lambda tx: tx.deliveries.of("nobody")) == []

    def test_a_crowded_inbox_is_told_like_a_small_one_while_it_fills_and_empties(self, bench: Bench) -> None:
        many = KEPT + 40

        def told(tx: Tx) -> tuple[object, ...]:
            last, sent = tx.inbox.newest_unread(MAIN), tx.inbox.newest_unread(MAIN, "send")
            return (
                [row.key for row in tx.inbox.unread(MAIN, 3)],
                [row.key for row in tx.inbox.unread_by_child(MAIN, 3)],
                [row.key for row in (*last, *sent)],
                tx.inbox.newest_unread(MAIN, "wake"),
                tx.inbox.count_unread(MAIN),
                (tx.inbox.count_waiting(MAIN, "send", ""), tx.inbox.count_waiting(MAIN, "notice", "")),
            )

        def fill(tx: Tx) -> tuple[object, ...]:
            for number in range(many):
                if number % 100 == 50:
                    send(tx, f"m{number:05}")
                else:
                    announce(tx, f"c{number:05}", run=f"run {number}")
            return told(tx)

        sends = [f"m{number:05}" for number in range(many) if number % 100 == 50]
        first, last = [f"c{number:05}" for number in range(3)], f"c{many - 1:05}"
        by_child = (sends + first)[:3]
        counted = (many - len(sends), len(sends))
        full: tuple[object, ...] = (first, by_child, [last, sends[-1]], [], counted, (len(sends), 0))
        assert bench.do(fill) == full
        bench.reopen()
        assert bench.do(told) == bench.see(told) == full

        def empty(tx: Tx) -> tuple[object, ...]:
            for row in tx.inbox.unread(MAIN)[:-2]:
                assert tx.inbox.consume(row.key, AT)
            return told(tx)

        rest = [f"c{many - 2:05}", last]
        assert bench.do(empty) == (rest, rest, [last], [], (2, 0), (0, 0))
        assert bench.see(told) == (rest, rest, [last], [], (2, 0), (0, 0))
