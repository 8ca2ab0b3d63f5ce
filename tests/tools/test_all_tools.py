"""What holds for every tool of a session: the built-in ones, the session tools, and a user's own."""

import asyncio
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from msgspec.structs import replace

import fledge
from fledge.errors import BadInput
from fledge.orchestrator.turns import Drive, snapshot_of
from fledge.tools.base import Tool, ToolContext, tool
from fledge.tools.registry import ToolSet
from fledge.tools.search import search_tool
from tests.api.scene import Place
from tests.model.world import MAIN
from tests.statements import proves
from tests.tools.test_fuzz import Nowhere

CONTEXT = ToolContext(session=MAIN, entry=1, index=0, workspace=Path("/nowhere"))


@fledge.tool
async def own_with_context(
    where: fledge.ToolContext,
    context: str,
    session: str,
    self: str,
    function: str,
    arguments: str,
    takes: str,
    raw: str,
) -> str:
    """Parameters that are called as parts of fledge are."""
    return context


@fledge.tool
def own_without_context(context: str, name: str = "a", partial: str = "b") -> str:
    """The same without a context, and no coroutine."""
    return context


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> ToolSet:
    """The tools of a main conversation, as its turns have them."""
    folder = tmp_path_factory.mktemp("state")

    async def body(fl: fledge.Fledge) -> ToolSet:
        await fl.session("main").send("hello")
        snapshot = await fl.engine.store.read(lambda tx: snapshot_of(tx, MAIN))
        drive = Drive(MAIN, 0, 0, None, {}, snapshot)
        return (await fl._parts.profiles.profile(fl.engine, drive)).tools

    return Place(folder).act(body, tools=[own_with_context, own_without_context, search_tool(Nowhere())])


def sample(form: dict[str, Any], parts: dict[str, Any]) -> Any:
    """A value that a schema allows, another one than its default."""
    if "$ref" in form:
        return sample(parts[form["$ref"].rpartition("/")[2]], parts)
    if "anyOf" in form:
        return sample(form["anyOf"][0], parts)
    if "enum" in form:
        return next(choice for choice in reversed(form["enum"]) if choice != form.get("default"))
    match form.get("type"):
        case "boolean":
            return not form.get("default", False)
        case "integer" | "number":
            least = form.get("minimum", form.get("exclusiveMinimum", 0) + 1)
            return least + 1 if least == form.get("default") else least
        case "array":
            return [sample(form["items"], parts)]
        case "object":
            return {name: sample(one, parts) for name, one in form.get("properties", {}).items()}
        case _:
            return "words"


def parts_of(one: Tool) -> dict[str, Any]:
    parts: Any = one.schema.get("$defs", {})
    return dict(parts)


def test_there_are_built_in_tools_session_tools_and_a_users_own(tools: ToolSet) -> None:
    assert tools.names >= {"read", "exec", "web_fetch", "web_search", "own_with_context", "own_without_context"}
    assert tools.names >= {"sessions_spawn", "sessions_send", "sessions_yield", "sessions_history", "subagents"}


@proves("7.input.15", "What fledge adds to a tool's arguments never takes the place of one that the model sent")
def test_every_tool_is_given_all_that_the_model_sent_and_the_context_beside_it(tools: ToolSet) -> None:
    for one in tools:
        given: list[tuple[tuple[Any, ...], dict[str, Any]]] = []

        async def record(*args: Any, **kwargs: Any) -> str:
            given.append((args, kwargs))  # noqa: B023
            return "ran"

        sent = sample(dict(one.schema), parts_of(one))
        assert set(sent) == set(one.arguments.__struct_encode_fields__)
        result = run(replace(one, function=record), msgspec.json.encode(sent).decode())
        assert result == "ran", f"{one.name}: {result}"
        (args, kwargs), expected = given[0], msgspec.convert(sent, one.arguments)
        if one.takes == "struct":
            assert (args, kwargs) == ((CONTEXT, expected), {})
            continue
        injected = {} if one.context_parameter is None else {one.context_parameter: CONTEXT}
        named = {name: getattr(expected, name) for name in expected.__struct_fields__}
        assert len(named | injected) == len(named) + len(injected)
        assert (args, kwargs) == ((), named | injected)


def choices(form: dict[str, Any]) -> list[dict[str, Any]]:
    """Every form that a value may have, null apart."""
    if "anyOf" in form:
        return [choice for one in form["anyOf"] for choice in choices(one)]
    return [] if form == {"type": "null"} else [form]


def quoted(value: Any) -> Any:
    """The value as a small model may write it: numbers, true and false in quotes."""
    match value:
        case bool() | int() | float():
            return msgspec.json.encode(value).decode()
        case list():
            return [quoted(one) for one in value]
        case dict():
            return {name: quoted(one) for name, one in value.items()}
        case _:
            return value


@proves("7.input.38", "A tool reads a number, true or false that its model put in quotes, where no text fits")
def test_every_tool_reads_numbers_true_and_false_in_quotes_as_if_they_had_none(tools: ToolSet) -> None:
    in_quotes = set()
    for one in tools:
        parts, fields = parts_of(one), cast(dict[str, Any], one.schema["properties"])
        whole = sample(dict(one.schema), parts)
        for name, form in fields.items():
            for choice in choices(form):
                sent = whole | {name: sample(choice, parts)}
                raw, written = msgspec.json.encode(sent), msgspec.json.encode(quoted(sent))
                assert one.read_arguments(written.decode()) == one.read_arguments(raw.decode()), (one.name, name)
                if quoted(sent[name]) != sent[name]:
                    in_quotes.add((one.name, name))
    assert in_quotes >= {
        ("sessions_yield", "for"),
        ("sessions_spawn", "timeoutSeconds"),
        ("sessions_history", "limit"),
        ("subagents", "recentMinutes"),
        ("exec", "timeoutSeconds"),
        ("read", "limit"),
    }


def run(one: Tool, raw: str) -> str:
    return asyncio.run(one.call(raw, CONTEXT)).text


@proves("7.input.15")
def test_a_users_own_tool_gets_a_parameter_that_is_called_context() -> None:
    names = ("context", "session", "self", "function", "arguments", "takes", "raw")
    assert run(own_with_context, msgspec.json.encode(dict.fromkeys(names, "mine")).decode()) == "mine"
    assert run(own_without_context, '{"context": "mine"}') == "mine"


class Both(msgspec.Struct):
    context: str


@proves("7.input.15")
def test_a_tool_whose_context_would_overwrite_an_argument_cannot_be_made() -> None:
    with pytest.raises(BadInput, match=r"^own\(context\): must not be both the context and an argument$"):
        replace(own_with_context, name="own", arguments=Both, context_parameter="context")


def two(context: ToolContext, other: ToolContext) -> None: ...
def alike(file_name: str, fileName: str) -> None: ...


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (two, "two(other): must not be a second context: context is one already"),
        (alike, "alike: its parameters must differ in camelCase"),
    ],
)
def test_parameters_that_could_not_be_told_apart_are_refused(function: Any, reason: str) -> None:
    with pytest.raises(BadInput) as refused:
        tool(function)
    assert str(refused.value).startswith(reason)
