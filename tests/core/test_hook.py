"""What hooks may answer, and what of it counts."""

from typing import Any

import pytest

from fledge.core.hook import HOOKS, Binding, HookName, SubagentEnded, SubagentSpawning, target_in, thread_for
from fledge.core.route import Address
from fledge.errors import Refused

ASKED = SubagentSpawning(
    child_session_key="agent:main:subagent:1",
    requester_session_key="agent:main:main",
    agent_id="main",
    label="x",
    mode="session",
    channel="ops",
    to="ann",
)


def test_the_four_hooks_are_those_of_the_contract() -> None:
    assert HOOKS == ("subagent_spawning", "subagent_spawned", "subagent_delivery_target", "subagent_ended")
    assert set(HOOKS) == set(HookName.__args__)  # type: ignore[attr-defined]


def test_an_event_concerns_a_place_or_none() -> None:
    assert ASKED.address == Address("ops", "ann")
    ended = SubagentEnded(
        target_session_key="k", target_kind="subagent", run_id="r", reason="complete", outcome="ok", ended_at=1.0
    )
    assert ended.address is None


READY = {"status": "ok", "threadBindingReady": True}


@pytest.mark.parametrize(
    ("answer", "thread"),
    [
        (None, None),
        ({**READY, "thread": "t"}, Address("ops", "ann", "t")),
        ({**READY, "thread": "t", "to": "room"}, Address("ops", "room", "t")),
        ({**READY, "thread": "t", "channel": "news", "to": "room"}, Address("news", "room", "t")),
        ({"threadBindingReady": True, "thread": "t", "more": 1}, Address("ops", "ann", "t")),
        (Binding(thread_binding_ready=True, thread="t"), Address("ops", "ann", "t")),
    ],
)
def test_an_answer_with_a_ready_thread_binds_it_where_it_was_asked_for_unless_it_says_otherwise(
    answer: object, thread: Address | None
) -> None:
    assert thread_for(ASKED, answer) == thread


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ({"status": "error", "error": "no room"}, "thread: the subagent_spawning hook refused it: no room"),
        ({"status": "error"}, "thread: the subagent_spawning hook refused it: no reason given"),
        ({"status": "ok"}, "thread: the subagent_spawning hook made no thread ready"),
        ({}, "thread: the subagent_spawning hook made no thread ready"),
        (READY, "thread: the subagent_spawning hook named no thread: thread: must not be empty"),
        ({**READY, "thread": "\x1b"}, "thread: the subagent_spawning hook named no thread: thread: must have"),
        (
            {**READY, "thread": "t", "channel": "No"},
            "thread: the subagent_spawning hook named no thread: channel: must",
        ),
        ("yes", "thread: the subagent_spawning hook answered what cannot be read (answer: must be an object (got"),
        ({"status": "maybe"}, "thread: the subagent_spawning hook answered what cannot be read (status: must be one"),
        ({**READY, "thread": 7}, "thread: the subagent_spawning hook answered what cannot be read (thread: must be"),
    ],
)
def test_any_other_answer_refuses_the_spawn_in_words_of_its_own(answer: object, words: str) -> None:
    with pytest.raises(Refused) as refused:
        thread_for(ASKED, answer)
    assert refused.value.status == "error"
    assert str(refused.value).startswith(words)


@pytest.mark.parametrize(
    ("answer", "address"),
    [
        ({"channel": "news", "to": "bob"}, Address("news", "bob")),
        ({"channel": "news", "to": "bob", "thread": "t", "more": 1}, Address("news", "bob", "t")),
        (Address("news", "bob", "t"), Address("news", "bob", "t")),
        (None, None),
        ({}, None),
        ("news", None),
        (7, None),
        ({"channel": "internal", "to": "bob"}, None),
        ({"channel": "news", "to": ""}, None),
        ({"channel": "news", "to": 7}, None),
        (Address("News", "bob"), None),
    ],
)
def test_a_target_is_a_whole_address_or_none(answer: Any, address: Address | None) -> None:
    assert target_in(answer) == address
