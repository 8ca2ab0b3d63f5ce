"""Too much waits: messages and notices give way or are refused, completions never do; a turn is told 64 KiB whole."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial

import pytest

from fledge.core.inbox import Drop, QueueMode, QueueSettings
from fledge.core.transcript import Spoken, Told, from_body
from fledge.orchestrator import control, inbox, turns
from tests.model.world import MAIN
from tests.orchestrator.scene import Scene, refused
from tests.statements import proves

KIB = 1024


@contextmanager
def crowded(cap: int = 3, drop: Drop = "summarize", mode: QueueMode = "collect") -> Iterator[Scene]:
    with closing(Scene(queue=QueueSettings(mode=mode, people=mode, cap=cap, drop=drop))) as scene:
        yield scene
        scene.check()


def spoken(scene: Scene, key: str = MAIN) -> list[tuple[str, str]]:
    """Kind and words of every message in a transcript."""
    bodies = [from_body(entry.body) for entry in scene.entries(key)]
    return [(body.kind, body.text) for body in bodies if isinstance(body, Spoken)]


def states(scene: Scene, *keys: str) -> list[str]:
    return [scene.row(key).state for key in keys]


def say(scene: Scene, count: int, key: str = MAIN) -> list[str]:
    return [scene.send(key, f"message {number}", None) for number in range(count)]


# ---- the cap ---------------------------------------------------------------------------------------------------------


@proves("2.queue.4", "The cap of 20 with drop summarize, old or new applies to messages and notices that wait")
def test_the_oldest_give_way_with_a_line_each_that_the_next_turn_reads_first() -> None:
    with crowded() as scene:
        keys = say(scene, 5)
        assert states(scene, *keys) == ["dropped", "dropped", "unread", "unread", "unread"]
        scene.start(MAIN)
        told = "[2 older messages left out: messages.queue.cap]\n- message 0\n- message 1"
        assert spoken(scene) == [("dropped", told), *(("send", f"message {number}") for number in (2, 3, 4))]
        assert states(scene, *keys) == ["dropped", "dropped", "consumed", "consumed", "consumed"]


def test_what_was_told_of_those_that_gave_way_is_not_told_again() -> None:
    with crowded() as scene:
        say(scene, 5)
        scene.finish(scene.start(MAIN))
        scene.send(MAIN, "later", None)
        scene.start(MAIN)
        assert spoken(scene)[-1] == ("send", "later")
        assert len([kind for kind, _ in spoken(scene) if kind == "dropped"]) == 1


@proves("2.queue.4")
def test_old_gives_way_without_a_word_and_stays_visible() -> None:
    with crowded(drop="old") as scene:
        keys = say(scene, 5)
        scene.start(MAIN)
        assert spoken(scene) == [("send", f"message {number}") for number in (2, 3, 4)]
        assert states(scene, *keys[:2]) == ["dropped", "dropped"]


@proves("2.queue.4")
def test_new_is_refused_to_its_sender_and_nothing_changes() -> None:
    with crowded(drop="new") as scene:
        say(scene, 3)
        reason = f"3 messages wait for {MAIN} already: messages.queue.cap"
        with refused(scene, "rate_limited", reason):
            scene.send(MAIN, "one too many", None)
        scene.finish(scene.start(MAIN))
        scene.send(MAIN, "now there is room", None)


def test_a_message_sent_again_under_its_key_is_never_too_much() -> None:
    with crowded(drop="new") as scene:
        for number in range(3):
            scene.commit(partial(control.send, key=MAIN, message="hello", row_key=f"k{number}"))
        assert scene.commit(lambda c: control.send(c, MAIN, "hello", None, "k0")) == "k0"


def test_a_message_that_gave_way_is_not_put_again_by_its_key() -> None:
    with crowded(cap=1) as scene:
        for key in ("a", "b", "a"):
            scene.commit(partial(control.send, key=MAIN, message=key, row_key=key))
        assert states(scene, "a", "b") == ["dropped", "unread"]


@proves("2.queue.4")
@pytest.mark.parametrize("drop", ["summarize", "old", "new"])
def test_notices_do_not_push_out_messages_nor_messages_notices(drop: Drop) -> None:
    with crowded(drop=drop) as scene:
        sent = say(scene, 3)
        for number in range(3):
            scene.commit(partial(inbox.notice, session=MAIN, key=f"n{number}", words=f"notice {number}"))
        assert {row.state for row in scene.unread(MAIN)} == {"unread"}
        assert len(scene.unread(MAIN)) == 6
        scene.commit(lambda c: inbox.notice(c, MAIN, "n3", "notice 3"))
        assert states(scene, *sent, "n0", "n1", "n2", "n3") == [*["unread"] * 3, "dropped", *["unread"] * 3]


@proves("2.queue.6", "Completions are never dropped")
@pytest.mark.parametrize("drop", ["summarize", "old", "new"])
def test_completions_are_never_dropped_nor_counted(drop: Drop) -> None:
    with crowded(cap=1, drop=drop) as scene:
        main = scene.main()
        children = []
        for _ in range(3):
            children.append(scene.begin(main))
            scene.finish(children[-1], "found it")
        scene.send(MAIN, "and this", None)
        assert len(scene.unread(MAIN)) == 4
        scene.finish(main)
        assert scene.read_main() == [child.session for child in children]


def test_a_run_has_its_cap_too_and_reads_the_line_at_its_next_boundary() -> None:
    with crowded() as scene:
        o = scene.orchestrator()
        say(scene, 4, o.session)
        assert scene.step(o, "thinking") == 3
        told = "[1 older message left out: messages.queue.cap]\n- message 0"
        assert spoken(scene, o.session)[1] == ("dropped", told)


def test_followup_tells_the_line_with_the_first_of_those_that_stayed() -> None:
    with crowded(cap=2, mode="followup") as scene:
        say(scene, 3)
        scene.finish(scene.start(MAIN))
        assert [kind for kind, _ in spoken(scene)] == ["dropped", "send"]
        scene.finish(scene.start(MAIN))
        assert [kind for kind, _ in spoken(scene)] == ["dropped", "send", "send"]


def test_senders_of_different_origins_do_not_push_each_other_out_nor_read_each_others_lines() -> None:
    with crowded(cap=1) as scene:
        for key, origin in (("a", "mail"), ("b", "chat"), ("c", "mail"), ("d", "chat")):
            put = partial(inbox.put_message, session=MAIN, key=key, kind="send", source=None, words=f"says {key}")
            scene.commit(partial(put, origin=origin))
        assert states(scene, *"abcd") == ["dropped", "dropped", "unread", "unread"]
        scene.commit(lambda c: inbox.wake(c, MAIN))
        scene.start(MAIN)
        assert [text.splitlines()[-1] for _, text in spoken(scene)] == ["- says a", "says c"]


# ---- 64 KiB ----------------------------------------------------------------------------------------------------------


def answers(scene: Scene, count: int, size: int) -> list[str]:
    """Main has been told nothing yet of so many children, each of which said something so long, ending in its key."""
    main = scene.main()
    keys = []
    for _ in range(count):
        child = scene.begin(main, lane="nested")
        scene.finish(child, f"{'x' * size} {child.session} END")
        keys.append(child.session)
    scene.finish(main)
    return keys


def read_all(scene: Scene) -> list[Told]:
    """Main's next turn reads everything; answers what it was told."""
    main = scene.start(MAIN)
    while main.more and scene.commit(lambda c: turns.read_more(c, main)):
        pass
    return [body for entry in scene.entries(MAIN) if isinstance(body := from_body(entry.body), Told)]


@proves("2.queue.8")
@pytest.mark.parametrize("count", [5, 30, 64, 65, 100, 300])
def test_a_turn_is_told_64_kib_whole_the_newest_and_every_other_in_a_line_once(count: int) -> None:
    with crowded() as scene:
        keys = answers(scene, count, 3000)
        told = read_all(scene)
        text = "\n".join(body.text for body in told)
        runs = [item.run for body in told for item in body.completions]
        assert runs == keys
        whole = [key for key in keys if f"{key} END" in text]
        assert whole == keys[count - len(whole) :]
        assert (len(whole) == count) == (count == 5)
        sections = 3000 * len(whole)
        assert count == 5 or 40 * KIB < sections < 64 * KIB
        for key in keys[: count - len(whole)]:
            assert text.count(f'sessions_history {{"sessionKey": "{key}"') == 1
        forms = [[trace.form for trace in scene.traces(scene.outcome_row(key).key)] for key in keys]
        assert forms == [["summarised"]] * (count - len(whole)) + [["whole"]] * len(whole)
        summarised = sum(len(body.summarised) for body in told)
        assert summarised == count - len(whole)


def test_what_is_steered_into_a_turn_later_has_what_its_earlier_readings_left() -> None:
    with crowded(mode="steer") as scene:
        main = scene.main()
        forms = []
        for _ in range(25):
            child = scene.begin(main, lane="nested")
            scene.finish(child, "x" * 3000)
            assert scene.step(main, "thinking") == 1
            forms.append(scene.traces(scene.outcome_row(child.session).key)[0].form)
        assert forms == ["whole"] * 18 + ["summarised"] * 7
        scene.finish(main)
        child = scene.begin(scene.main(), lane="nested")
        scene.finish(child, "x" * 3000)
        scene.step(scene.drives[MAIN], "thinking")
        assert scene.traces(scene.outcome_row(child.session).key)[0].form == "whole"


def test_followup_turns_have_64_kib_each_whatever_waits_behind_them() -> None:
    with crowded(mode="followup") as scene:
        keys = answers(scene, 70, 3000)
        assert scene.read_main() == keys[:1]
        assert scene.traces(scene.outcome_row(keys[0]).key)[0].form == "whole"
