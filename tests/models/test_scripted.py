"""The scripted model: rules, functions, calls, pieces, time and failures."""

import re

import pytest

from fledge.errors import BadInput
from fledge.models.base import (
    AssistantMessage,
    Broke,
    Call,
    ModelEvent,
    Opaque,
    ReplyEnded,
    Request,
    Text,
    Thought,
    ToolMessage,
    Usage,
    UserMessage,
)
from fledge.models.scripted import (
    Answer,
    CutReply,
    Rule,
    ScriptedFailure,
    ScriptedModel,
    ScriptedReply,
    in_order,
    last_text,
    use,
)
from tests.models.asking import HELLO, ask, calls_of, run, text_of

RULES = [
    Rule("weather", "sunny"),
    Rule(re.compile(r"^\d+$"), lambda request: f"number {last_text(request)}"),
    Rule(lambda request: len(request.messages) > 2, ScriptedReply("long talk")),
    Rule("read", use("read", path="x")),
]


def said_to(text: str, model: ScriptedModel) -> list[ModelEvent]:
    return run(ask(model, Request(model="m", messages=(UserMessage(text),))))


@pytest.mark.parametrize(("text", "answer"), [("the weather?", "sunny"), ("42", "number 42"), ("4 2 weather", "sunny")])
def test_the_first_rule_that_fits_answers(text: str, answer: str) -> None:
    assert text_of(said_to(text, ScriptedModel(RULES))) == answer


def test_rules_see_the_whole_request() -> None:
    messages = (UserMessage("a"), AssistantMessage("b"), UserMessage("c"))
    assert text_of(run(ask(ScriptedModel(RULES), Request(model="m", messages=messages)))) == "long talk"


def test_where_no_rule_fits_the_request_is_wrong() -> None:
    assert said_to("what?", ScriptedModel(RULES)) == [Broke("bad_request", "no rule fits 'what?'")]
    assert last_text(Request(model="m", messages=())) == ""


def test_a_call_may_have_an_argument_that_is_called_name() -> None:
    assert use("greet", name="Ann") == Call("", "greet", '{"name":"Ann"}')


def test_answers_in_order_follow_from_the_request_alone() -> None:
    script = in_order(use("read", path="x"), lambda request: f"it says {last_text(request)}", waited)
    messages = (UserMessage("q"), AssistantMessage("", (Call("c", "read", "{}"),)), ToolMessage("c", "read", "hello"))
    for _ in "12":  # a restarted program asks again
        model = ScriptedModel(script)
        assert [call.name for call in calls_of(said_to("q", model))] == ["read"]
        assert text_of(run(ask(model, Request(model="m", messages=messages)))) == "it says hello"
        assert text_of(run(ask(model, Request(model="m", messages=(*messages, AssistantMessage("a")))))) == "later"


def test_a_request_that_no_answer_is_left_for_is_wrong() -> None:
    messages = (UserMessage("q"), AssistantMessage("a"), UserMessage("r"))
    asked = run(ask(ScriptedModel(in_order("a")), Request(model="m", messages=messages)))
    assert asked == [Broke("bad_request", "the script has no answer number 2")]


def test_a_reply_has_every_kind_of_event() -> None:
    reply = ScriptedReply("hello", (use("read", path="x"),), "hm", "sealed", Usage(1, 2), model="real")
    assert said_to("x", ScriptedModel(lambda request: reply)) == [
        Thought("hm"),
        Text("hello"),
        Opaque("sealed"),
        Call("call_0", "read", '{"path":"x"}'),
        Usage(1, 2),
        ReplyEnded("tools", "real"),
    ]


def test_calls_without_an_id_are_named_by_their_place() -> None:
    model = ScriptedModel(lambda request: ScriptedReply(calls=(use("a"), Call("mine", "b", "{}"), use("c"))))
    before = AssistantMessage("", (Call("x", "a", "{}"), Call("y", "a", "{}")))
    messages = (UserMessage("q"), before, ToolMessage("x", "a", "1"), ToolMessage("y", "a", "2"))
    request = Request(model="m", messages=messages)
    first, second = run(ask(model, request)), run(ask(model, request))
    assert [call.id for call in calls_of(first)] == ["call_2", "mine", "call_4"]
    assert first == second


def test_a_failure_of_no_known_kind_is_refused_with_the_kinds_there_are() -> None:
    with pytest.raises(BadInput, match=r"failures\.1: must be one of retryable, auth, .*'overloaded'"):
        ScriptedModel(RULES, failures={1: "overloaded"})  # type: ignore[dict-item]


async def waited(request: Request) -> Answer:
    return "later"


@pytest.mark.parametrize(
    ("answer", "events"),
    [
        ("text", [Text("text"), Usage(2, 2), ReplyEnded("end", "m")]),
        (use("t"), [Call("call_0", "t", "{}"), Usage(2, 1), ReplyEnded("tools", "m")]),
        (ScriptedReply(stop="length"), [Usage(2, 1), ReplyEnded("length", "m")]),
        (Broke("quota", "no"), [Broke("quota", "no")]),
        ([Text("a"), ReplyEnded("end", "b")], [Text("a"), ReplyEnded("end", "b")]),
    ],
)
def test_an_answer_may_be_said_in_many_ways(answer: Answer, events: list[ModelEvent]) -> None:
    assert run(ask(ScriptedModel(lambda request: answer))) == events


def test_a_script_may_take_its_time() -> None:
    assert text_of(run(ask(ScriptedModel(waited)))) == "later"


def test_pieces_and_pauses() -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    model = ScriptedModel(lambda request: "abcde", piece_chars=2, latency_s=3.0, piece_s=0.5, sleep=sleep)
    assert run(ask(model))[:3] == [Text("ab"), Text("cd"), Text("e")]
    assert slept == [3.0] + [0.5] * 5


@pytest.mark.parametrize(
    ("failure", "events"),
    [
        ("auth", [Broke("auth", "scripted auth")]),
        (Broke("retryable", "slow", 3.0, 429), [Broke("retryable", "slow", 3.0, 429)]),
        (CutReply(0), [Broke("interrupted", "scripted cut")]),
        (CutReply(1), [Text("ab"), Broke("interrupted", "scripted cut")]),
        (CutReply(1, "retryable"), [Text("ab"), Broke("retryable", "scripted cut")]),
    ],
)
def test_the_nth_request_fails_as_told_and_the_others_do_not(
    failure: ScriptedFailure, events: list[ModelEvent]
) -> None:
    model = ScriptedModel(lambda request: "abc", failures={2: failure}, piece_chars=2)
    assert text_of(run(ask(model))) == "abc"
    assert run(ask(model)) == events
    assert text_of(run(ask(model))) == "abc"
    assert model.requests == [HELLO] * 3
    run(model.close())
