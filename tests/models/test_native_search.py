"""Searches that a provider does inside a reply: asked for where it can, shown as sources, handed back as they came."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from fledge.models.anthropic import AnthropicModel
from fledge.models.base import AssistantMessage, Request, UserMessage
from fledge.models.catalog import Card
from fledge.models.keys import SecretKey
from fledge.models.native_search import MAX_SOURCES, CitedSource, sources_text
from fledge.models.responses import ResponsesModel
from fledge.models.scripted import ScriptedReply
from tests.cli.test_choosing import Place, served
from tests.models.anthropic_server import AnthropicServer, signed
from tests.models.anthropic_server import event as anthropic_event
from tests.models.asking import ANTHROPIC, READ, answered, ask, broke_of, run, service, text_of, usage_of
from tests.models.responses_server import ResponsesServer, encrypted
from tests.models.responses_server import event as responses_event
from tests.models.serving import KEY, Action, Answer, Body, Send, Status
from tests.statements import proves

URL = "https://birds.example/wren"
WORDS = "Wrens are small."
SOURCES = f"\n\nSources:\n- About wrens {URL}"
CARD = Card(search=True, efforts=("low", "medium"))
FIRST = Request(model="m", system="s", messages=(UserMessage("wrens?"),), tools=(READ,), search=True)


def then(reply: AssistantMessage, **changes: Any) -> Request:
    """The next request of the conversation."""
    more = (*FIRST.messages, reply, UserMessage("more?"))
    return msgspec.structs.replace(FIRST, messages=more, **changes)


# ---- Anthropic -------------------------------------------------------------------------------------------------------

USE = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "wrens"}}


def found(account: str = "first") -> dict[str, Any]:
    hit = {"type": "web_search_result", "url": URL, "title": "About wrens", "page_age": None}
    hit["encrypted_content"] = signed(account, "m", URL)
    return {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [hit]}


def searched_by_anthropic() -> list[Action]:
    """A reply that searches once, then says what it found; as the reference streams it."""
    citation = {"type": "web_search_result_location", "url": URL, "title": "About wrens", "encrypted_index": "x"}
    deltas: list[tuple[int, dict[str, Any]]] = [
        (0, {"type": "input_json_delta", "partial_json": '{"query": '}),
        (0, {"type": "input_json_delta", "partial_json": '"wrens"}'}),
        (2, {"type": "citations_delta", "citation": citation}),
        (2, {"type": "text_delta", "text": WORDS}),
        (2, {"type": "citations_delta", "citation": citation}),
    ]
    starts = [USE | {"input": {}}, found(), {"type": "text", "text": "", "citations": []}]
    events = [anthropic_event("message_start", message={"model": "m", "usage": {"input_tokens": 5}})]
    for index, start in enumerate(starts):
        events.append(anthropic_event("content_block_start", index=index, content_block=start))
        events += [anthropic_event("content_block_delta", index=at, delta=one) for at, one in deltas if at == index]
        events.append(anthropic_event("content_block_stop", index=index))
    usage = {"output_tokens": 7, "server_tool_use": {"web_search_requests": 1}}
    events.append(anthropic_event("message_delta", delta={"stop_reason": "end_turn"}, usage=usage))
    return [Send(one) for one in (*events, anthropic_event("message_stop"))]


def claude(server: AnthropicServer, card: Card | None = CARD) -> AnthropicModel:
    return AnthropicModel(service(server.base_url, "anthropic"), SecretKey(KEY), card=lambda _: card)


@proves(
    "7.input.30",
    "Where no service is set and the catalogue says that a model's provider searches, it does: its items go back to it"
    " as they came, and the pages it cites follow the reply as sources",
)
def test_anthropics_search_is_offered_shown_as_sources_and_handed_back() -> None:
    async def main() -> None:
        script: list[Answer] = [
            searched_by_anthropic(),
            ScriptedReply("done"),
            ScriptedReply("done"),
            ScriptedReply("done"),
        ]
        async with AnthropicServer(script) as server:
            model = claude(server)
            events = await ask(model, FIRST)
            assert text_of(events) == WORDS + SOURCES
            assert usage_of(events)[0].searches == 1
            search = {"type": "web_search_20250305", "name": "web_search", "max_uses": 5}
            assert server.bodies[0]["tools"][-1] == search
            reply = answered(events)
            await ask(model, then(reply))
            assert server.bodies[1]["messages"][1]["content"] == [USE, found(), {"type": "text", "text": WORDS}]
            await ask(model, then(reply, search=False))
            assert server.bodies[2]["messages"][1]["content"] == [{"type": "text", "text": WORDS}]
            await ask(model, then(reply, model="another"))
            assert server.bodies[3]["messages"][1]["content"] == [{"type": "text", "text": WORDS + SOURCES}]
            assert server.complaints == []
            await model.close()

    run(main())


@proves("7.input.30")
@pytest.mark.parametrize("card", [None, Card()])
def test_a_model_that_the_catalogue_does_not_say_can_search_is_not_asked_to(card: Card | None) -> None:
    async def main() -> None:
        async with AnthropicServer([ScriptedReply("done")]) as server:
            model = claude(server, card)
            await ask(model, FIRST)
            assert [one["name"] for one in server.bodies[0]["tools"]] == ["read"]
            await model.close()

    run(main())


@proves("7.input.31", "A provider that refuses to search is asked without, from then on")
def test_an_organization_without_search_is_answered_without_it() -> None:
    async def main() -> None:
        error = {"type": "invalid_request_error", "message": "Web search is not enabled for this organization."}
        refused = [Status(400, {"type": "error", "error": error})]
        async with AnthropicServer([refused, ScriptedReply("done"), ScriptedReply("again")]) as server:
            model = claude(server)
            assert text_of(await ask(model, FIRST)) == "done"
            assert text_of(await ask(model, FIRST)) == "again"
            assert [len(one["tools"]) for one in server.bodies] == [2, 1, 1]
            await model.close()

    run(main())


def test_hits_of_another_account_are_given_up_so_that_the_conversation_goes_on() -> None:
    async def main() -> None:
        async with AnthropicServer([searched_by_anthropic(), ScriptedReply("done")]) as server:
            model = claude(server)
            reply = answered(await ask(model, FIRST))
            server.account = "second"
            assert text_of(await ask(model, then(reply))) == "done"
            assert len(server.complaints) == 1
            await model.close()

    run(main())


def test_another_refusal_is_a_refusal() -> None:
    async def main() -> None:
        async with ANTHROPIC.talk([[Status(400, {"error": {"message": "no"}})]]) as (_, model):
            assert broke_of(await ask(model, FIRST)).trouble == "bad_request"

    run(main())


# ---- OpenAI ----------------------------------------------------------------------------------------------------------

CALL = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "wrens"}}
OPENED = {"type": "web_search_call", "id": "ws_2", "status": "completed", "action": {"type": "open_page", "url": URL}}


def searched_by_openai(thinks: bool) -> list[Action]:
    citation = {"type": "url_citation", "url": URL, "title": "About wrens", "start_index": 0, "end_index": 5}
    content = [{"type": "output_text", "text": WORDS, "annotations": [citation, citation]}]
    message = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": content}
    thought = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": encrypted("first", "gpt-5.2", [])}
    items = [*([thought] if thinks else []), CALL, OPENED, message]
    last = len(items) - 1
    events = [responses_event("response.output_text.delta", output_index=last, delta=WORDS)]
    events += [
        responses_event("response.output_item.done", output_index=at, item=item) for at, item in enumerate(items)
    ]
    response = {"model": "m", "usage": {"input_tokens": 5, "output_tokens": 7}}
    return [Send(one) for one in (*events, responses_event("response.completed", response=response))]


OPENAI = msgspec.structs.replace(FIRST, model="gpt-5.2")


def gpt(server: ResponsesServer, card: Card = CARD) -> ResponsesModel:
    return ResponsesModel(service(server.base_url), SecretKey(KEY), card=lambda _: card)


@proves("7.input.30")
@pytest.mark.parametrize("thinks", [True, False])
def test_openais_search_is_offered_shown_as_sources_and_handed_back(thinks: bool) -> None:
    async def main() -> None:
        async with ResponsesServer(
            [searched_by_openai(thinks), ScriptedReply("done"), ScriptedReply("done")]
        ) as server:
            model = gpt(server)
            events = await ask(model, OPENAI)
            assert text_of(events) == WORDS + SOURCES
            assert usage_of(events)[0].searches == 1
            assert server.bodies[0]["tools"][0] == {"type": "web_search"}
            reply = answered(events)
            await ask(model, then(reply, model="gpt-5.2"))
            kinds = ["message", *(["reasoning"] if thinks else []), "web_search_call", "web_search_call", "message"]
            items = server.bodies[1]["input"]
            assert [item["type"] for item in items] == [*kinds, "message"]
            assert [item for item in items if item["type"] == "web_search_call"] == [CALL, OPENED]
            assert items[-2]["content"] == [{"type": "output_text", "text": WORDS}]
            await ask(model, then(reply, model="gpt-5.2", search=False))
            assert server.bodies[2]["input"][1]["content"] == [{"type": "output_text", "text": WORDS + SOURCES}]
            assert server.complaints == []
            await model.close()

    run(main())


def test_openai_is_not_asked_to_search_beside_its_lowest_level_of_reasoning() -> None:
    async def main() -> None:
        async with ResponsesServer([ScriptedReply("done")]) as server:
            model = gpt(server, Card(search=True, efforts=("minimal", "low")))
            await ask(model, msgspec.structs.replace(FIRST, model="gpt-5"))
            assert [one["type"] for one in server.bodies[0]["tools"]] == ["function"]
            assert server.complaints == []
            await model.close()

    run(main())


@proves("7.input.31")
def test_a_responses_server_without_search_is_answered_without_it() -> None:
    async def main() -> None:
        refused = [Status(400, {"error": {"message": "Hosted tool 'web_search' is not supported with this model."}})]
        async with ResponsesServer([refused, ScriptedReply("done")]) as server:
            model = gpt(server)
            assert text_of(await ask(model, OPENAI)) == "done"
            assert [len(one["tools"]) for one in server.bodies] == [2, 1]
            await model.close()

    run(main())


# ---- sources ---------------------------------------------------------------------------------------------------------


def test_sources_are_few_short_and_only_addresses_of_the_web() -> None:
    hostile = [
        CitedSource("javascript:alert(1)", "x"),
        CitedSource(None, "x"),
        CitedSource("https://a.example/\n- https://evil", "x"),
        CitedSource("https://a.example/" + "x" * 600, "x"),
    ]
    assert sources_text(hostile) == ""
    many = [CitedSource(f"https://a.example/{number}", f"a\n\ntitle {'y' * 300}") for number in range(99)]
    lines = sources_text([*many, *many]).splitlines()
    assert len(lines) == MAX_SOURCES + 3
    assert lines[3].startswith("- a title yyy")
    assert max(map(len, lines)) < 200
    assert sources_text([CitedSource("http://a.example/")]) == "\n\nSources:\n- http://a.example/"


# ---- through the command ---------------------------------------------------------------------------------------------


@proves("7.input.30")
def test_run_lets_the_provider_search_and_prints_the_sources(tmp_path: Path) -> None:
    def script(body: Body) -> Answer:
        return searched_by_anthropic()

    place = Place(tmp_path)
    with served(tmp_path, AnthropicServer, script) as asked:
        port = (tmp_path / "served" / "port").read_text()
        env = {"ANTHROPIC_API_KEY": KEY, "ANTHROPIC_BASE_URL": f"http://127.0.0.1:{port}"}
        done = place.fledge("run", "wrens?", **env)
        assert done.stdout == f"{WORDS}{SOURCES}\n", done.stderr
        place.fledge("run", "--set", "tools.web.search.enabled=false", "wrens?", **env)
        names = [[tool["name"] for tool in body["tools"]] for body in asked()]
        assert ["web_search" in one for one in names] == [True, False]
