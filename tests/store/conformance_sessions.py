"""What every store promises of sessions, the counts of their children, transcripts and turns."""

from typing import get_args

import pytest

from fledge.core import events as ev
from fledge.core.handover import Artifact, Handover, Worktree
from fledge.core.progress import Progress
from fledge.core.run import Ended, Ok
from fledge.core.transcript import Spoken, to_body
from fledge.core.turn import AskingPerson, Driven, Due, OpenTurn, Turn, TurnEnd, Wait
from fledge.errors import FledgeError, NotFound, Refused
from fledge.store.base import (
    Counts,
    Entry,
    EntryKind,
    QueuePlace,
    RowState,
    Session,
    SessionFacts,
    SessionKind,
    TurnRan,
    Tx,
    Used,
)
from fledge.store.sessions import Sessions
from tests.core.samples import AT
from tests.statements import proves
from tests.store.bench import FACTS, MAIN, Bench, admit, change_turn, child, close_row, conversation, follow
from tests.store.conformance_people import question


class SessionConformance:
    """Sessions and their places in the tree."""

    @pytest.mark.parametrize("kind", get_args(SessionKind))
    def test_an_opened_session_is_as_it_was_opened_and_opening_it_again_changes_nothing(
        self, bench: Bench, kind: SessionKind
    ) -> None:
        facts = SessionFacts(agent_id="helper", label="birds é", role="leaf", workspace="/w")
        bench.do(lambda tx: tx.sessions.open("s", kind, MAIN, 3, facts, AT))
        opened = Session("s", kind, MAIN, 3, facts, deleted=False, epoch=0, generation=0, created_at=AT)
        assert bench.see(lambda tx: tx.sessions.get("s")) == opened
        bench.do(lambda tx: tx.sessions.open("s", "main", None, 0, FACTS, AT + 1))
        assert bench.see(lambda tx: tx.sessions.get("s")) == opened

    def test_what_is_known_of_a_session_can_be_changed(self, bench: Bench) -> None:
        facts = SessionFacts(label="new", model="m", thinking="low")
        bench.do(lambda tx: conversation(tx, "s", "other"))
        bench.do(lambda tx: tx.sessions.change("s", facts))
        seen = bench.see(lambda tx: (tx.sessions.get("s"), tx.sessions.get("other")))
        assert [one.facts for one in seen if one is not None] == [facts, FACTS]

    def test_a_session_can_become_one_of_another_kind(self, bench: Bench) -> None:
        bench.do(lambda tx: tx.sessions.open("s", "named", None, 0, FACTS, AT))
        bench.do(lambda tx: tx.sessions.change("s", FACTS, "main"))
        session = bench.see(lambda tx: tx.sessions.get("s"))
        assert session is not None
        assert session.is_main

    def test_the_time_of_a_persons_newest_words_is_known(self, bench: Bench) -> None:
        bodies = [Spoken("a", "r1", "send"), Spoken("b", "r2", "send", "other"), Spoken("c", "r3", "notice")]
        bench.do(lambda tx: conversation(tx, "s", "other"))

        def job(tx: Tx) -> None:
            for at, body in enumerate(bodies):
                tx.transcripts.append("s", AT + at, [("user", to_body(body))])

        bench.do(job)
        assert bench.see(lambda tx: (tx.transcripts.last_spoken_at("s"), tx.transcripts.last_spoken_at("other"))) == (
            AT,
            None,
        )
        bench.do(lambda tx: tx.transcripts.append("s", AT + 9, [("user", to_body(bodies[0]))]))
        assert bench.see(lambda tx: tx.transcripts.last_spoken_at("s")) == AT + 9

    def test_a_deleted_session_may_keep_its_transcript_until_it_is_opened_again(self, bench: Bench) -> None:
        def job(tx: Tx) -> None:
            conversation(tx, "s")
            tx.transcripts.append("s", AT, [("user", "x")])
            tx.sessions.delete("s", keep_transcript=True)

        bench.do(job)
        session = bench.see(lambda tx: tx.sessions.get("s"))
        assert session is not None
        assert session.deleted
        assert len(bench.see(lambda tx: tx.transcripts.entries("s"))) == 1
        bench.do(lambda tx: conversation(tx, "s"))
        assert bench.see(lambda tx: tx.transcripts.entries("s")) == []
        bench.do(lambda tx: tx.transcripts.append("s", AT, [("user", "y")]))
        bench.do(lambda tx: conversation(tx, "s"))
        assert [entry.seq for entry in bench.see(lambda tx: tx.transcripts.entries("s"))] == [2]

    def test_roots_are_the_open_sessions_that_nobody_spawned_oldest_first(self, bench: Bench) -> None:
        def job(tx: Tx) -> None:
            tx.sessions.open("second", "named", None, 0, FACTS, AT + 1)
            tx.sessions.open("first", "program", None, 0, FACTS, AT)
            tx.sessions.open("child", "subagent", "first", 1, FACTS, AT)
            tx.sessions.open("gone", "main", None, 0, FACTS, AT)
            tx.sessions.delete("gone")

        bench.do(job)
        assert bench.see(lambda tx: tx.sessions.roots()) == ["first", "second"]

    def test_a_session_that_was_never_opened_is_none(self, bench: Bench) -> None:
        assert bench.see(lambda tx: tx.sessions.get("s")) is None

    @proves("2.arbitration.20", "Deleting a session never deletes a row")
    def test_a_deleted_session_is_known_without_its_transcript_and_no_row_of_any_inbox_is_touched(
        self, bench: Bench
    ) -> None:
        states: tuple[RowState, ...] = tuple(state for state in get_args(RowState) if state != "dropped")

        def job(tx: Tx) -> None:
            conversation(tx, "s", "other")
            for session in ("s", "other"):
                tx.transcripts.append(session, AT, [("user", "x"), ("assistant", "y")])
                tx.turns.open(session, {}, AT)
                for state in states:
                    key = f"{session} {state}"
                    tx.inbox.put(key, session, "outcome", "run", "{}", AT)
                    if state != "unread":
                        assert close_row(tx, key, state, AT)
            tx.inbox.put("sent", "other", "send", "s", "hello", AT)
            tx.sessions.delete("s")

        bench.do(job)
        session = bench.see(lambda tx: tx.sessions.get("s"))
        assert session == Session("s", "named", None, 0, FACTS, True, 0, 0, AT)
        assert bench.see(lambda tx: (tx.transcripts.entries("s"), tx.turns.get("s"))) == ([], None)
        assert bench.see(lambda tx: len(tx.transcripts.entries("other"))) == 2
        assert bench.see(lambda tx: tx.turns.get("other")) is not None
        other = bench.see(lambda tx: tx.sessions.get("other"))
        assert other is not None
        assert not other.deleted
        keys = [(session, state) for session in ("s", "other") for state in states]
        rows = bench.see(lambda tx: [tx.inbox.get(f"{session} {state}") for session, state in keys])
        assert [row and (row.session, row.state) for row in rows] == keys
        assert [row.key for row in bench.see(lambda tx: tx.inbox.unread("other"))] == ["other unread", "sent"]

    def test_a_deleted_session_that_is_opened_again_is_open_and_empty(self, bench: Bench) -> None:
        def job(tx: Tx) -> None:
            conversation(tx, "s")
            tx.transcripts.append("s", 1000.0, [("user", "{}")])
            tx.sessions.delete("s")
            conversation(tx, "s")

        bench.do(job)
        session = bench.see(lambda tx: tx.sessions.get("s"))
        assert session is not None
        assert not session.deleted
        assert bench.see(lambda tx: tx.transcripts.entries("s")) == []

    def test_sessions_of_one_agent_or_of_all_are_listed_by_their_last_entry(self, bench: Bench) -> None:
        def job(tx: Tx) -> None:
            keys = ("agent:a:main", "agent:a:x", "agent:a-b:main", "agent:b:main", "agent:b:gone")
            for n, key in enumerate(keys):
                tx.sessions.open(key, "named", None, 0, FACTS, AT + n)
            tx.transcripts.append("agent:a:main", AT + 90, [("user", "x")])
            tx.transcripts.append("agent:a:main", AT + 100, [("user", "y")])
            tx.transcripts.append("agent:a:x", AT + 2, [("user", "x")])
            tx.sessions.delete("agent:b:gone")

        bench.do(job)

        def listed(agent_id: str | None, limit: int = 10) -> list[tuple[str, float]]:
            return [
                (session.key, at - AT)
                for session, at in bench.see(lambda tx: tx.lists.recent_sessions(agent_id, limit))
            ]

        everyone = [("agent:a:main", 100.0), ("agent:b:main", 3.0), ("agent:a-b:main", 2.0), ("agent:a:x", 2.0)]
        assert listed(None) == everyone
        assert listed("a") == [("agent:a:main", 100.0), ("agent:a:x", 2.0)]
        assert listed("nobody") == []
        assert listed(None, 2) == everyone[:2]

    def test_the_tail_of_a_transcript_is_its_newest_entries_oldest_first(self, bench: Bench) -> None:
        kinds: list[tuple[EntryKind, str]] = [("user", "1"), ("assistant", "2"), ("tool", "3"), ("note", "4")]

        def job(tx: Tx) -> None:
            conversation(tx, "s", "other")
            tx.transcripts.append("s", AT, kinds)
            tx.transcripts.append("other", AT, [("user", "x")])

        bench.do(job)
        assert [entry.seq for entry in bench.see(lambda tx: tx.transcripts.tail("s", 2))] == [3, 4]
        assert [entry.body for entry in bench.see(lambda tx: tx.transcripts.tail("s", 2, ("tool", "note")))] == [
            "1",
            "2",
        ]
        assert bench.see(lambda tx: tx.transcripts.tail("s", 10)) == bench.see(lambda tx: tx.transcripts.entries("s"))
        assert [entry.seq for entry in bench.see(lambda tx: tx.transcripts.tail("s", 2, before=4))] == [2, 3]
        assert bench.see(lambda tx: tx.transcripts.tail("s", 2, before=1)) == []
        assert bench.see(lambda tx: tx.transcripts.tail("nobody", 10)) == []

    def test_deleting_a_session_that_is_not_there_makes_none(self, bench: Bench) -> None:
        bench.do(lambda tx: tx.sessions.delete("s"))
        assert bench.see(lambda tx: tx.sessions.get("s")) is None

    def test_a_lineage_is_the_session_and_its_ancestors_nearest_first(self, bench: Bench) -> None:
        def job(tx: Tx) -> None:
            conversation(tx, "top", "unrelated")
            for depth, (key, parent) in enumerate((("b", "top"), ("c", "b"), ("d", "c"), ("aside", "b")), 1):
                tx.sessions.open(key, "subagent", parent, depth, FACTS, AT)
            tx.sessions.open("orphan", "subagent", "never opened", 1, FACTS, AT)
            tx.sessions.delete("c")

        bench.do(job)

        def lineage(key: str) -> list[str]:
            return [session.key for session in bench.see(lambda tx: tx.sessions.lineage(key))]

        assert lineage("d") == ["d", "c", "b", "top"]
        assert lineage("top") == ["top"]
        assert lineage("orphan") == ["orphan"]
        assert lineage("nobody") == []
        assert [session.deleted for session in bench.see(lambda tx: tx.sessions.lineage("d"))] == [
            False,
            True,
            False,
            False,
        ]

    @proves("3.limits.16", "Cycles are guarded")
    def test_a_cycle_ends_a_lineage(self, bench: Bench) -> None:
        def job(tx: Tx) -> None:
            for key, parent in (("a", "c"), ("b", "a"), ("c", "b"), ("own", "own"), ("outside", "a")):
                tx.sessions.open(key, "subagent", parent, 1, FACTS, AT)

        bench.do(job)

        def lineage(key: str) -> list[str]:
            return [session.key for session in bench.see(lambda tx: tx.sessions.lineage(key))]

        assert lineage("a") == ["a", "c", "b"]
        assert lineage("outside") == ["outside", "a", "c", "b"]
        assert lineage("own") == ["own"]

    def test_a_generation_is_raised_by_one_for_that_session_alone(self, bench: Bench) -> None:
        bench.do(lambda tx: conversation(tx, "s", "other"))
        assert [bench.do(lambda tx: tx.sessions.raise_generation("s")) for _ in range(3)] == [1, 2, 3]
        sessions = bench.see(lambda tx: [tx.sessions.get(key) for key in ("s", "other")])
        assert [session and session.generation for session in sessions] == [3, 0]
        with pytest.raises(NotFound, match=r"^no session x$"):
            bench.do(lambda tx: tx.sessions.raise_generation("x"))


class CountConformance:
    """Counting children."""

    def test_counts_follow_every_child(self, bench: Bench) -> None:
        def job(tx: Tx) -> list[Counts]:
            return [
                tx.sessions.counts("s"),
                child(tx, "s"),
                child(tx, "s"),
                tx.sessions.child_settled("s"),
                tx.sessions.child_unsettled("s"),
                tx.sessions.child_settled("s"),
                tx.sessions.child_settled("s"),
                child(tx, "s"),
            ]

        seen = [(0, 0), (1, 1), (2, 2), (2, 1), (2, 2), (2, 1), (2, 0), (3, 1)]
        assert bench.do(job) == [Counts(spawned, unsettled) for spawned, unsettled in seen]
        assert bench.see(lambda tx: (tx.sessions.counts("s"), tx.sessions.counts("other"))) == (
            Counts(3, 1),
            Counts(0, 0),
        )
        assert bench.see(lambda tx: tx.sessions.counts("s").settled) == 2

    def test_a_count_never_falls_below_zero(self, bench: Bench) -> None:
        bench.do(lambda tx: (child(tx, "s"), tx.sessions.child_settled("s")))
        with pytest.raises(FledgeError):
            bench.do(lambda tx: tx.sessions.child_settled("s"))
        assert bench.see(lambda tx: tx.sessions.counts("s")) == Counts(1, 0)

    def test_no_more_children_are_unsettled_than_were_ever_admitted(self, bench: Bench) -> None:
        bench.do(lambda tx: child(tx, "s"))
        with pytest.raises(FledgeError):
            bench.do(lambda tx: tx.sessions.child_unsettled("s"))
        assert bench.see(lambda tx: tx.sessions.counts("s")) == Counts(1, 1)

    def test_a_session_that_never_had_a_child_has_none_to_settle_or_unsettle(self, bench: Bench) -> None:
        for verb in (Sessions.child_settled, Sessions.child_unsettled):
            with pytest.raises(NotFound, match=r"^no session s$"):
                bench.do(lambda tx, verb=verb: verb(tx.sessions, "s"))  # type: ignore[misc]
        bench.do(lambda tx: conversation(tx, "s"))
        for verb in (Sessions.child_settled, Sessions.child_unsettled):
            with pytest.raises(NotFound, match=r"^s has no such child: 0 of 0 are unsettled$"):
                bench.do(lambda tx, verb=verb: verb(tx.sessions, "s"))  # type: ignore[misc]
        assert bench.see(lambda tx: tx.sessions.counts("s")) == Counts(0, 0)

    def test_queueing_a_child_does_not_count_it(self, bench: Bench) -> None:
        bench.do(lambda tx: tx.queue.put("child", "subagent", "s", False))
        assert bench.see(lambda tx: tx.sessions.counts("s")) == Counts(0, 0)
        with pytest.raises(FledgeError):
            bench.do(lambda tx: tx.sessions.child_settled("s"))


class UsedConformance:
    """What replies used."""

    def test_what_replies_used_is_added_up_and_nothing_is_made_of_what_nobody_said(self, bench: Bench) -> None:
        def job(tx: Tx) -> list[Used]:
            conversation(tx, "s", "t")
            found = [tx.transcripts.used("s"), tx.transcripts.used("nobody")]
            for used in (None, Used(10, 2), None, Used(5, 1, 0.25, 7), Used(0, 1), Used(1, 1, 0.5, 2)):
                tx.transcripts.append("s", AT, [("assistant", "{}"), ("tool", "{}")], used)
                found.append(tx.transcripts.used("s"))
            return [*found, tx.transcripts.used("t")]

        nothing = Used(None, None, None, None)
        added = [nothing, *[Used(10, 2, None, 0)] * 2, Used(15, 3, 0.25, 7), Used(15, 4, 0.25, 7), Used(16, 5, 0.75, 9)]
        assert bench.do(job) == [nothing, nothing, *added, nothing]
        bench.reopen()
        assert bench.see(lambda tx: tx.transcripts.used("s")) == Used(16, 5, 0.75, 9)
        bench.do(lambda tx: tx.sessions.delete("s"))
        assert bench.see(lambda tx: tx.transcripts.used("s")) == nothing


class TranscriptConformance:
    """Transcripts and turns."""

    def test_entries_are_numbered_from_one_within_each_session(self, bench: Bench) -> None:
        kinds: tuple[EntryKind, ...] = get_args(EntryKind)

        def job(tx: Tx) -> tuple[int, int, int]:
            conversation(tx, "s", "other")
            return (
                tx.transcripts.append("s", AT, [(kind, f"{kind} é\x00") for kind in kinds]),
                tx.transcripts.append("other", AT + 1, [("note", "first")]),
                tx.transcripts.append("s", AT + 2, [("note", "last")]),
            )

        assert bench.do(job) == (5, 1, 6)
        expected = [Entry(n, AT, kind, f"{kind} é\x00") for n, kind in enumerate(kinds, 1)]
        assert bench.see(lambda tx: tx.transcripts.entries("s")) == [*expected, Entry(6, AT + 2, "note", "last")]
        assert bench.see(lambda tx: tx.transcripts.entries("other")) == [Entry(1, AT + 1, "note", "first")]
        assert bench.see(lambda tx: [tx.transcripts.last(key) for key in ("s", "other", "nobody")]) == [6, 1, 0]

    def test_a_page_of_a_transcript_begins_after_an_entry_and_has_a_limit(self, bench: Bench) -> None:
        def job(tx: Tx) -> None:
            conversation(tx, "s")
            tx.transcripts.append("s", AT, [("note", f"{n}") for n in range(1, 1002)])

        bench.do(job)

        def page(after: int = 0, limit: int = 1000) -> list[int]:
            return [entry.seq for entry in bench.see(lambda tx: tx.transcripts.entries("s", after, limit))]

        assert bench.see(lambda tx: [entry.seq for entry in tx.transcripts.entries("s")]) == list(range(1, 1001))
        assert page(limit=2000) == list(range(1, 1002))
        assert page(after=1) == list(range(2, 1002))
        assert page(after=998, limit=2) == [999, 1000]
        assert page(after=1000) == [1001]
        assert page(after=1001) == []
        assert page(limit=0) == []

    def test_appending_nothing_answers_the_last_number_and_adds_nothing(self, bench: Bench) -> None:
        def job(tx: Tx) -> tuple[int, int]:
            conversation(tx, "s")
            tx.transcripts.append("s", AT, [("note", "x")])
            return tx.transcripts.append("s", AT, []), tx.transcripts.append("s", AT, [("note", "y")])

        assert bench.do(job) == (1, 2)

    def test_a_session_that_is_not_there_has_no_transcript_to_append_to(self, bench: Bench) -> None:
        with pytest.raises(NotFound, match=r"^no session s$"):
            bench.do(lambda tx: tx.transcripts.append("s", AT, [("note", "x")]))
        assert bench.see(lambda tx: tx.transcripts.entries("s")) == []

    def test_a_turn_is_open_until_it_is_closed_and_the_next_has_the_next_number(self, bench: Bench) -> None:
        bench.do(lambda tx: conversation(tx, "s", "other"))
        generations = {"s": 2, MAIN: 5}
        first = OpenTurn("s", 1, generations, drained=0, failures=0, crashes=0, opened_at=AT)
        assert bench.see(lambda tx: tx.turns.get("s")) is None
        assert bench.do(lambda tx: tx.turns.open("s", generations, AT)) == first
        assert bench.see(lambda tx: (tx.turns.get("s"), tx.turns.get("other"))) == (first, None)
        bench.do(lambda tx: tx.turns.close("s", TurnEnd("replied"), AT + 1))
        assert bench.see(lambda tx: tx.turns.get("s")) is None
        assert bench.do(lambda tx: tx.turns.open("s", {}, AT + 2)) == OpenTurn("s", 2, {}, 0, 0, 0, AT + 2)

    def test_a_turn_knows_behind_which_entry_it_opened(self, bench: Bench) -> None:
        def job(tx: Tx) -> list[int]:
            conversation(tx, "s")
            first = tx.turns.open("s", {}, AT).opened_after
            tx.transcripts.append("s", AT, [("user", "x"), ("assistant", "y")])
            tx.turns.close("s", TurnEnd("replied"), AT)
            return [first, tx.turns.open("s", {}, AT).opened_after]

        assert bench.do(job) == [0, 2]
        turn = bench.see(lambda tx: tx.turns.get("s"))
        assert turn is not None
        assert turn.opened_after == 2

    def test_what_a_session_waits_for_stands_until_it_is_changed(self, bench: Bench) -> None:
        waits = [Wait(2, AT + 9, "any", "ann", 1), Wait(2, AT + 9, "any", "ann", 1, "past"), Wait(None), None]

        def job(tx: Tx) -> list[Wait | None]:
            conversation(tx, "s", "other")
            found = [tx.turns.wait("s")]
            for wait in waits:
                tx.turns.save_wait("s", wait)
                found.append(tx.turns.wait("s"))
            return [*found, tx.turns.wait("other"), tx.turns.wait("nobody")]

        assert bench.do(job) == [None, *waits, None, None]

    def test_a_wait_is_overdue_from_its_time_on_until_it_is_over(self, bench: Bench) -> None:
        def job(tx: Tx) -> None:
            conversation(tx, "early", "late", "over", "ever")
            tx.turns.save_wait("late", Wait(None, AT + 2))
            tx.turns.save_wait("early", Wait(None, AT + 1))
            tx.turns.save_wait("over", Wait(None, AT, over="settled"))
            tx.turns.save_wait("ever", Wait(None))

        bench.do(job)
        found = bench.see(lambda tx: [tx.turns.overdue(AT + at, 9) for at in (0, 1, 2)])
        assert found == [[], ["early"], ["early", "late"]]
        assert bench.see(lambda tx: tx.turns.overdue(AT + 9, 1)) == ["early"]
        assert bench.see(lambda tx: [tx.next_due(AT + at) for at in (0, 1, 2)]) == [AT + 1, AT + 2, None]

    def test_what_a_session_is_at_follows_from_its_place_its_driver_and_its_turn(self, bench: Bench) -> None:
        def job(tx: Tx) -> list[Turn | None]:
            conversation(tx, "s")
            found = [tx.turns.state("s")]
            tx.turns.save_wait("s", Wait(1))
            tx.queue.put("s", "main", "s", False, AT + 1)
            found.append(tx.turns.state("s"))
            epoch = tx.queue.claim(QueuePlace("s", "main", 1, False), "me", AT)
            tx.turns.open("s", {}, AT)
            found.append(tx.turns.state("s"))
            tx.drivers.release("s", epoch)
            found.append(tx.turns.state("s"))
            tx.queue.put("s", "main", "s", False, AT + 2)
            found.append(tx.turns.state("s"))
            tx.approvals.ask(question(session="s"))
            found.append(tx.turns.state("s"))
            tx.approvals.move("s", 1, 0, "denied")
            return [*found, tx.turns.state("s")]

        turn, wait = OpenTurn("s", 1, {}, 0, 0, 0, AT), Wait(1)
        assert bench.do(job) == [
            Turn(),
            Turn(Due(AT + 1), wait),
            Turn(Driven(turn), wait),
            Turn(Due(None, turn), wait),
            Turn(Due(AT + 2, turn), wait),
            Turn(AskingPerson(AT + 2, turn), wait),
            Turn(Due(AT + 2, turn), wait),
        ]

    def test_a_live_run_a_program_and_a_deleted_session_take_no_turns(self, bench: Bench) -> None:
        run, was = "agent:main:subagent:r", "agent:main:subagent:w"

        def job(tx: Tx) -> list[Turn | None]:
            tx.sessions.open("program:p", "program", None, 0, FACTS, AT)
            for key in (run, was):
                tx.sessions.open(key, "subagent", MAIN, 1, FACTS, AT)
            admit(tx, run)
            ended = ev.Imported(at=AT, ended=Ended(Ok(), AT, AT))
            follow(tx, admit(tx, was), ended)
            before = [tx.turns.state(key) for key in ("nobody", "program:p", run, was)]
            tx.sessions.delete(was)
            return [*before, tx.turns.state(was)]

        assert bench.do(job) == [None, None, None, Turn(), None]

    def test_a_driver_that_was_superseded_drives_no_more(self, bench: Bench) -> None:
        def job(tx: Tx) -> tuple[Turn | None, OpenTurn]:
            conversation(tx, "s")
            tx.queue.put("s", "main", "s", False)
            tx.queue.claim(QueuePlace("s", "main", 1, False), "me", AT)
            turn = tx.turns.open("s", {}, AT)
            tx.drivers.supersede("s", AT + 5)
            return tx.turns.state("s"), turn

        state, turn = bench.do(job)
        assert state == Turn(Due(None, turn))

    def test_a_second_turn_is_refused_while_one_is_open_and_the_first_stays(self, bench: Bench) -> None:
        def job(tx: Tx) -> OpenTurn:
            conversation(tx, "s", "other")
            return tx.turns.open("s", {"s": 1}, AT)

        first = bench.do(job)
        with pytest.raises(Refused, match=r"^a turn of s is open$"):
            bench.do(lambda tx: tx.turns.open("s", {}, AT + 1))
        assert bench.see(lambda tx: tx.turns.get("s")) == first
        assert bench.do(lambda tx: tx.turns.open("other", {}, AT)).turn == 1

    def test_a_turn_of_a_session_that_is_not_there_is_not_found(self, bench: Bench) -> None:
        with pytest.raises(NotFound, match=r"^no session s$"):
            bench.do(lambda tx: tx.turns.open("s", {}, AT))

    def test_a_turn_remembers_what_it_drained_and_how_often_it_was_driven_in_vain(self, bench: Bench) -> None:
        def job(tx: Tx) -> None:
            conversation(tx, "s", "other")
            tx.turns.open("s", {}, AT)
            tx.turns.open("other", {}, AT)
            change_turn(tx, "s", drained=2, failures=1, crashes=1)
            change_turn(tx, "s", drained=5)
            change_turn(tx, "s", failures=4, crashes=2)

        bench.do(job)
        assert bench.see(lambda tx: tx.turns.get("s")) == OpenTurn("s", 1, {}, 5, 4, 2, AT)
        assert bench.see(lambda tx: tx.turns.get("other")) == OpenTurn("other", 1, {}, 0, 0, 0, AT)
        bench.do(lambda tx: tx.turns.close("s", TurnEnd("replied"), AT))
        bench.do(lambda tx: tx.turns.open("s", {}, AT))
        assert bench.see(lambda tx: tx.turns.get("s")) == OpenTurn("s", 2, {}, 0, 0, 0, AT)

    def test_a_turn_remembers_how_far_it_has_come_and_the_next_begins_anew(self, bench: Bench) -> None:
        def job(tx: Tx) -> None:
            conversation(tx, "s", "other")
            tx.turns.open("s", {}, AT)
            tx.turns.open("other", {}, AT)
            change_turn(tx, "s", progress=Progress(1, ("x",), (0, 0, 0), AT))
            change_turn(tx, "s", progress=Progress(2, ("x", "x"), (1, 0, 0), AT + 1))
            change_turn(tx, "s", drained=1)

        bench.do(job)
        bench.reopen()
        turns = bench.see(lambda tx: [tx.turns.get("s"), tx.turns.get("other")])
        assert [turn and turn.progress for turn in turns] == [
            Progress(2, ("x", "x"), (1, 0, 0), AT + 1),
            Progress(),
        ]
        bench.do(lambda tx: tx.turns.close("s", TurnEnd("replied"), AT))
        assert bench.do(lambda tx: tx.turns.open("s", {}, AT)).progress == Progress()

    def test_failing_turns_are_open_ones_that_took_something_and_were_driven_in_vain(self, bench: Bench) -> None:
        def job(tx: Tx) -> None:
            names = ("late", "early", "closed", "empty", "fine")
            conversation(tx, *names)
            for at, name in enumerate(names):
                tx.turns.open(name, {"s": at}, AT - at)
                change_turn(tx, name, drained=0 if name == "empty" else 2, told_bytes=100 + at)
                change_turn(tx, name, failures=0 if name == "fine" else 3, crashes=1)
            tx.turns.close("closed", TurnEnd("stopped"), AT)

        bench.do(job)
        early, late = (
            OpenTurn("early", 1, {"s": 1}, 2, 3, 1, AT - 1, 101),
            OpenTurn("late", 1, {"s": 0}, 2, 3, 1, AT, 100),
        )
        assert bench.see(lambda tx: tx.turns.failing()) == [early, late]

    def test_what_the_newest_turn_ran_with_is_known_after_it_is_closed(self, bench: Bench) -> None:
        first, second = TurnRan("m-1", "high", ("read", "write"), True, "/w"), TurnRan("m-2")

        def job(tx: Tx) -> None:
            conversation(tx, "s", "other")
            tx.turns.ran("s", first)
            tx.turns.open("s", {}, AT)
            tx.turns.ran("s", second)
            tx.turns.ran("s", first)
            tx.turns.close("s", TurnEnd("replied"), AT)
            tx.turns.ran("s", second)
            tx.turns.open("s", {}, AT)

        assert bench.see(lambda tx: tx.turns.last_ran("s")) is None
        bench.do(job)
        assert bench.see(lambda tx: (tx.turns.last_ran("s"), tx.turns.last_ran("other"))) == (first, None)
        bench.do(lambda tx: tx.turns.ran("s", second))
        assert bench.see(lambda tx: tx.turns.last_ran("s")) == second

    def test_what_a_session_hands_over_is_what_was_last_known_of_it(self, bench: Bench) -> None:
        tree = Worktree("/w", "fledge/7", 2, ("a",), 3)
        handover = Handover("/w/artifacts", (Artifact("a", 3, "ab"), Artifact("b", 0)), 4, tree)
        bench.do(lambda tx: conversation(tx, "s", "other"))
        assert bench.see(lambda tx: (tx.sessions.handover("s"), tx.sessions.handover("nobody"))) == (None, None)
        bench.do(lambda tx: tx.sessions.keep_handover("s", Handover("/x")))
        bench.do(lambda tx: tx.sessions.keep_handover("s", handover))
        assert bench.see(lambda tx: (tx.sessions.handover("s"), tx.sessions.handover("other"))) == (handover, None)

    def test_without_an_open_turn_none_is_closed_and_none_can_be_saved(self, bench: Bench) -> None:
        def job(tx: Tx) -> OpenTurn:
            conversation(tx, "s")
            with pytest.raises(NotFound, match=r"^turn 1 of s is not open$"):
                tx.turns.save(OpenTurn("s", 1, {}, 0, 0, 0, AT))
            tx.turns.close("s", TurnEnd("replied"), AT)
            return tx.turns.open("s", {}, AT)

        assert bench.do(job) == OpenTurn("s", 1, {}, 0, 0, 0, AT)
        with pytest.raises(NotFound, match=r"^turn 2 of s is not open$"):
            bench.do(lambda tx: tx.turns.save(OpenTurn("s", 2, {}, 0, 0, 0, AT)))

    def test_numbers_of_entries_and_turns_go_on_where_a_deleted_session_stopped(self, bench: Bench) -> None:
        def job(tx: Tx) -> tuple[int, int]:
            conversation(tx, "s")
            tx.transcripts.append("s", AT, [("note", "x"), ("note", "y")])
            tx.turns.open("s", {}, AT)
            tx.sessions.delete("s")
            return tx.transcripts.append("s", AT, [("note", "z")]), tx.turns.open("s", {}, AT).turn

        assert bench.do(job) == (3, 2)


class ImageConformance:
    """Which sessions hold which images."""

    def test_an_image_is_held_until_the_last_session_that_holds_it_is_deleted(self, bench: Bench) -> None:
        bench.do(lambda tx: conversation(tx, "s", "other", "none"))
        assert bench.see(lambda tx: (tx.transcripts.files(), tx.transcripts.holds_files("s"))) == (set(), False)
        bench.do(lambda tx: tx.transcripts.hold_files("s", ["a", "b", "a"]))
        bench.do(lambda tx: tx.transcripts.hold_files("s", ["b"]))
        bench.do(lambda tx: tx.transcripts.hold_files("other", ["b"]))
        assert bench.see(lambda tx: tx.transcripts.files()) == {"a", "b"}
        assert bench.see(lambda tx: [tx.transcripts.holds_files(key) for key in ("s", "other", "none")]) == [
            True,
            True,
            False,
        ]
        bench.do(lambda tx: tx.sessions.delete("s"))
        assert bench.see(lambda tx: tx.transcripts.files()) == {"b"}
        bench.do(lambda tx: tx.sessions.delete("other"))
        assert bench.see(lambda tx: tx.transcripts.files()) == set()

    def test_images_stay_with_a_transcript_that_is_kept_until_it_goes(self, bench: Bench) -> None:
        def job(tx: Tx) -> None:
            conversation(tx, "s")
            tx.transcripts.hold_files("s", ["a"])
            tx.sessions.delete("s", keep_transcript=True)

        bench.do(job)
        assert bench.see(lambda tx: tx.transcripts.files()) == {"a"}
        bench.do(lambda tx: conversation(tx, "s"))
        assert bench.see(lambda tx: tx.transcripts.files()) == set()

    def test_a_run_that_is_forgotten_holds_no_image(self, bench: Bench) -> None:
        def job(tx: Tx) -> None:
            admit(tx, "agent:main:subagent:r")
            tx.transcripts.hold_files("agent:main:subagent:r", ["a"])
            tx.runs.forget("agent:main:subagent:r")

        bench.do(job)
        assert bench.see(lambda tx: tx.transcripts.files()) == set()

    def test_a_message_carries_its_images(self, bench: Bench) -> None:
        def job(tx: Tx) -> None:
            conversation(tx, "s")
            tx.inbox.put("k", "s", "send", None, "words", AT, carried="[1]")
            tx.inbox.put("plain", "s", "send", None, "words", AT)

        bench.do(job)
        assert [row.carried for row in bench.see(lambda tx: tx.inbox.unread("s"))] == ["[1]", ""]
