"""Whatever is sent, the answer is a result or an error that says what is wrong: fuzzed from the published schema."""

import asyncio
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import fledge
from fledge.commands import rpc
from fledge.commands.gateway_state import GatewayState
from fledge.commands.methods import METHODS, call, schema
from tests.api.scene import Place
from tests.statements import proves

PUBLISHED = schema()
TOLD = {rpc.PARSE, rpc.INVALID, rpc.NO_METHOD, rpc.BAD_PARAMS, rpc.REFUSED, rpc.NOT_FOUND, rpc.TOO_MANY}
"""Every error but our own trouble."""
LIBRARY_WORDS = re.compile(r"`\$|Expected `|Object (missing|contains)|Invalid (enum|value)|\b(NoneType|msgspec)\b")
"""What the library that checks types would say."""
NAMES = ("main", "agent:main:main", "last", "#1", "all", "agent:main:subagent:x", "program", "agent:main:program")
NAMING = ("key", "target", "id", "requester", "session", "run")
"""How parameters end that name a session or a run."""
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


def fitting(form: dict[str, Any], name: str = "") -> st.SearchStrategy[Any]:
    """Values that a schema of ours allows."""
    if "$ref" in form:
        return fitting(PUBLISHED["$defs"][form["$ref"].rpartition("/")[2]], name)
    if "anyOf" in form:
        return st.one_of([fitting(one, name) for one in form["anyOf"]])
    if "enum" in form:
        return st.sampled_from(form["enum"])
    match form.get("type"):
        case "string":
            text = st.text(min_size=form.get("minLength", 0), max_size=min(30, form.get("maxLength", 30)))
            return st.sampled_from(NAMES) | text if name.lower().endswith(NAMING) else text
        case "integer" | "number" as kind:
            most = 50 if name.startswith("timeout") else form.get("maximum", 1000)
            numbers = st.integers(form.get("minimum", 0), most)
            return numbers if kind == "integer" else numbers.map(float)
        case "boolean":
            return st.booleans()
        case "null":
            return st.none()
        case "array":
            return st.lists(fitting(form.get("items", {}), name), max_size=3)
        case "object" if "properties" in form:
            needed = {key: fitting(one, key) for key, one in form["properties"].items() if key in form["required"]}
            other = {key: fitting(one, key) for key, one in form["properties"].items() if key not in form["required"]}
            return st.fixed_dictionaries(needed, optional=other)
        case _:
            return json_values


def conversation(tmp_path_factory: pytest.TempPathFactory, requests: list[Any], check: Callable[[Any], None]) -> None:
    """Send requests one after the other to a gateway's methods, in virtual time."""

    async def body(fl: fledge.Fledge) -> None:
        desk = GatewayState(fl)
        for request in requests:
            raw = request if isinstance(request, bytes) else msgspec.json.encode(request)
            async with asyncio.timeout(3600):
                told = await rpc.answer(raw, lambda name, given: call(desk, name, given))
            check(None if told is None else msgspec.json.decode(told))

    Place(Path(tmp_path_factory.mktemp("fuzz"))).act(body)


def is_proper(told: Any) -> None:
    """A result, or an error of a kind that callers can do something about, in our own words."""
    for one in told if isinstance(told, list) else [told]:
        assert one is None or "result" in one or one["error"]["code"] in TOLD, one
        assert one is None or "result" in one or not LIBRARY_WORDS.search(one["error"]["message"]), one


requests = st.sampled_from(sorted(METHODS)).flatmap(
    lambda name: st.fixed_dictionaries(
        {
            "jsonrpc": st.just("2.0"),
            "method": st.just(name),
            "params": fitting(PUBLISHED["methods"][name]["params"]),
            "id": st.integers(0, 9),
        }
    )
)


def test_the_published_schema_names_every_method_with_what_it_takes_and_answers() -> None:
    assert set(PUBLISHED["methods"]) == set(METHODS)
    for one in PUBLISHED["methods"].values():
        assert one["description"]
        assert one["params"]
        assert one["result"]
    fields = [name for form in PUBLISHED["$defs"].values() for name in form.get("properties", ())]
    assert [name for name in fields if "_" in name] == []
    for contract in ("agent", "agent.wait", "send", "sessions.list", "sessions.history", "sessions.patch",
                     "sessions.delete", "events.subscribe", "health", "slash.run"):  # fmt: skip
        assert contract in PUBLISHED["methods"]


OWN_FOLDER = {"task": "echo", "workspace": "dir"}
MISFITS = {"task": 1}, {"task": "x", "mode": None}, {"task": "x", "thinking": 3}, {"task": "x", "budget": {"usd": "1"}}


@settings(max_examples=40, suppress_health_check=list(HealthCheck))
@given(asks=st.lists(requests, min_size=1, max_size=12))
@example(asks=[{"jsonrpc": "2.0", "method": "runs.spawn", "params": OWN_FOLDER, "id": 1}] * 8)
def test_requests_that_fit_the_schema_are_answered_or_refused_properly(
    tmp_path_factory: pytest.TempPathFactory, asks: list[Any]
) -> None:
    conversation(tmp_path_factory, asks, is_proper)


@proves("7.input.8")
@proves("7.input.33")
@example(asks=[("runs.spawn", misfit) for misfit in MISFITS])
@example(asks=[(name, {one: [] for one in METHODS[name].params.__struct_encode_fields__}) for name in sorted(METHODS)])
@settings(max_examples=40, suppress_health_check=list(HealthCheck))
@given(asks=st.lists(st.tuples(st.sampled_from(sorted(METHODS)), json_values), min_size=1, max_size=20))
def test_parameters_of_any_shape_are_answered_or_refused_properly(
    tmp_path_factory: pytest.TempPathFactory, asks: list[tuple[str, Any]]
) -> None:
    documents = [{"jsonrpc": "2.0", "method": name, "params": params, "id": 1} for name, params in asks]
    conversation(tmp_path_factory, documents, is_proper)


@settings(max_examples=60, suppress_health_check=list(HealthCheck))
@given(asks=st.lists(st.binary(max_size=60) | json_values.map(msgspec.json.encode), min_size=1, max_size=20))
def test_bytes_of_any_kind_are_refused_properly(tmp_path_factory: pytest.TempPathFactory, asks: list[bytes]) -> None:
    conversation(tmp_path_factory, asks, is_proper)


NUMBERS = ("integer", "number")
FAR_OUT = [
    *("0", "-1", "1.5", "-1.5", "1e308", "-1e308", str(2**31), str(2**53 + 1), str(2**63 - 1), str(-(2**63))),
    *(str(2**63), str(2**64), str(-(2**63) - 1), "1" + "0" * 400, "-1" + "0" * 400, "1e400", "1" + "0" * 5000),
]
"""Numbers as JSON has them."""


def sample(form: dict[str, Any], name: str = "") -> Any:
    """One value that a schema of ours allows."""
    if "$ref" in form:
        return sample(PUBLISHED["$defs"][form["$ref"].rpartition("/")[2]], name)
    if "anyOf" in form:
        return sample(form["anyOf"][0], name)
    if "enum" in form:
        return form["enum"][0]
    match form.get("type"):
        case "string":
            return "main" if name.lower().endswith(NAMING) else "x" * max(1, form.get("minLength", 0))
        case "integer" | "number":
            return form.get("minimum", 1)
        case "boolean":
            return False
        case "array":
            return []
        case "object" if "properties" in form:
            return {key: sample(one, key) for key, one in form["properties"].items() if key in form["required"]}
        case _:
            return None


def numbers_of(form: dict[str, Any], path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The places of all numbers in the parameters of a method."""
    if "$ref" in form:
        return numbers_of(PUBLISHED["$defs"][form["$ref"].rpartition("/")[2]], path) if len(path) < 5 else []
    if "anyOf" in form:
        return [place for one in form["anyOf"] for place in numbers_of(one, path)]
    if form.get("type") in NUMBERS:
        return [path]
    if form.get("type") == "array":
        return numbers_of(form.get("items", {}), (*path, 0))
    return [place for key, one in form.get("properties", {}).items() for place in numbers_of(one, (*path, key))]


def placed(form: dict[str, Any], path: tuple[Any, ...], value: Any) -> Any:
    """A value that the schema allows but for this one inside it."""
    if "$ref" in form:
        return placed(PUBLISHED["$defs"][form["$ref"].rpartition("/")[2]], path, value)
    if not path:
        return value
    for one in form.get("anyOf", ()):
        if path in numbers_of(one):
            return placed(one, path, value)
    if path[0] == 0:
        return [placed(form["items"], path[1:], value)]
    return sample(form) | {path[0]: placed(form["properties"][path[0]], path[1:], value)}


@proves("7.input.51", "A number of any size in any parameter is taken, or refused by the name of its field")
def test_numbers_of_any_size_are_taken_or_refused_by_name(tmp_path_factory: pytest.TempPathFactory) -> None:
    mark = "number-here"
    requests = [
        msgspec.json.encode({"jsonrpc": "2.0", "id": name, "method": name, "params": placed(form, path, mark)}).replace(
            f'"{mark}"'.encode(), number.encode()
        )
        for name, form in ((name, one["params"]) for name, one in PUBLISHED["methods"].items())
        for path in numbers_of(form)
        for number in FAR_OUT
    ]
    assert len(requests) > 20 * len(FAR_OUT)
    wrong = []

    def check(told: Any) -> None:
        try:
            is_proper(told)
        except AssertionError:
            wrong.append(told)

    conversation(tmp_path_factory, requests, check)
    assert wrong == []
