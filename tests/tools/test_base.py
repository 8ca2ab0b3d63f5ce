"""Tools from functions: names, schemas, arguments read and refused, results, errors, bounds."""

import asyncio
import threading
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import pytest

from fledge.errors import BadInput
from fledge.tools.base import MAX_ERROR_CHARS, Tool, ToolContext, ToolResult, capped, tool
from tests.statements import proves

TAGS = ["a"]
ONE = [1]
CONTEXT = ToolContext(session="agent:main:main", entry=3, index=1, workspace=Path("/nowhere"))


class Point(msgspec.Struct):
    x: int
    y: int = 0


def run(made: Tool, raw: str) -> ToolResult:
    return asyncio.run(made.call(raw, CONTEXT))


# ---- schema ----------------------------------------------------------------------------------------------------------


def test_a_function_becomes_a_tool_with_name_description_and_schema() -> None:
    @tool
    async def move(
        to: Point,
        context: ToolContext,
        how_fast: Annotated[int, msgspec.Meta(ge=1, le=9, description="in steps")] = 2,
        mood: Literal["calm", "wild"] = "calm",
        tags: list[str] = TAGS,
    ) -> str:
        """Move somewhere.

        It takes a while.

        Args:
            to: the place
                to be
            how_fast (int): not used, the annotation wins
            mood: how

        Returns: nothing of note
        """
        return ""

    assert move.name == "move"
    assert move.description == "Move somewhere.\n\nIt takes a while.\n\nReturns: nothing of note"
    assert move.schema == {
        "type": "object",
        "properties": {
            "to": {"$ref": "#/$defs/Point", "description": "the place to be"},
            "howFast": {"type": "integer", "minimum": 1, "maximum": 9, "description": "in steps", "default": 2},
            "mood": {"enum": ["calm", "wild"], "default": "calm", "description": "how"},
            "tags": {"type": "array", "items": {"type": "string"}},
        },
        "required": ["to"],
        "additionalProperties": False,
        "$defs": {
            "Point": {
                "title": "Point",
                "type": "object",
                "properties": {"x": {"type": "integer"}, "y": {"type": "integer", "default": 0}},
                "required": ["x"],
            }
        },
    }


def test_flags_have_careful_defaults_and_read_only_implies_repeatable() -> None:
    def nothing() -> None: ...

    plain = tool(nothing)
    assert (plain.repeatable, plain.read_only, plain.timeout_s, plain.max_chars) == (False, False, 120.0, 50_000)
    assert plain.description == ""
    assert plain.schema == {"type": "object", "properties": {}, "required": [], "additionalProperties": False}
    again = tool(repeatable=True, timeout=None, name="else-1", description="words", max_chars=5)(nothing)
    assert (again.repeatable, again.read_only, again.timeout_s, again.max_chars) == (True, False, None, 5)
    assert (again.name, again.description) == ("else-1", "words")
    assert tool(read_only=True)(nothing).repeatable


def test_a_tool_called_as_a_function_is_the_function() -> None:
    @tool
    def add(a: int, b: int = 1) -> int:
        return a + b

    assert add(2) == 3
    assert add(2, b=5) == 7


def starred(*a: int) -> None: ...
def keywords(**a: int) -> None: ...
def positional(a: int, /) -> None: ...
def underscored(_a: int) -> None: ...
def uncheckable(a: threading.Lock) -> None: ...
def unknown(a: int) -> None: ...


unknown.__annotations__["a"] = "Nowhere"


def unreadable(a: int) -> None: ...


unreadable.__annotations__["a"] = "int["


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (starred, "starred(a): must be a parameter that can be given by name"),
        (keywords, "keywords(a): must be a parameter that can be given by name"),
        (positional, "positional(a): must be a parameter that can be given by name"),
        (underscored, "underscored(_a): must have a type, and a name that does not begin with _"),
        (uncheckable, "uncheckable(a): must have a type that can be read from JSON"),
        (unknown, "unknown(a): must have a type that is known where the function is defined (name 'Nowhere'"),
        (unreadable, "unreadable(a): must have a type"),
        (dict.fromkeys, "fromkeys"),
        (lambda: None, "name: must be 1–64 letters"),
    ],
)
def test_a_function_that_cannot_be_described_is_refused_where_it_is_defined(function: Any, told: str) -> None:
    with pytest.raises(BadInput) as refusal:
        tool(function)
    assert told in str(refusal.value)


def test_a_parameter_without_a_type_is_refused() -> None:
    with pytest.raises(BadInput, match=r"untyped\(a\): must have a type"):
        tool(name="untyped")(lambda a: a)


@pytest.mark.parametrize("name", ["", "a b", "x" * 65, "a.b", "é"])
def test_a_name_no_provider_takes_is_refused(name: str) -> None:
    with pytest.raises(BadInput, match="name: must be 1–64"):
        tool(name=name)(lambda: None)


@pytest.mark.parametrize("timeout", [0, -1.0, float("nan")])
def test_a_timeout_must_be_a_time(timeout: float) -> None:
    with pytest.raises(BadInput, match="timeout: must be seconds, more than 0, or None"):
        tool(name="x", timeout=timeout)(lambda: None)


def add(a: int, b: int, c: int = 0) -> int:
    """Add numbers.

    Args:
        a: the first
    """
    return a + b + c


class Shop:
    """Sells things."""

    def __init__(self, price: int) -> None:
        self.price = price

    def total(self, count: int) -> int:
        """What so many cost."""
        return self.price * count

    async def __call__(self, count: int, context: ToolContext | None = None) -> str:
        return f"{context.session if context else ''} pays {self.price * count}"

    @classmethod
    def open(cls, count: int) -> int:
        """Open shops."""
        return count

    @staticmethod
    def close(count: int) -> int:
        """Close shops."""
        return count


@pytest.mark.parametrize(
    ("callable_", "name", "description", "takes", "answer"),
    [
        (partial(add, b=2), "add", "Add numbers.", {"a", "c"}, "3"),
        (partial(add, 2), "add", "Add numbers.", {"b", "c"}, None),
        (partial(partial(add, b=2), c=5), "add", "Add numbers.", {"a"}, "8"),
        (Shop(3).total, "total", "What so many cost.", {"count"}, "6"),
        (partial(Shop(3).total), "total", "What so many cost.", {"count"}, "6"),
        (Shop.open, "open", "Open shops.", {"count"}, "2"),
        (Shop.close, "close", "Close shops.", {"count"}, "2"),
        (Shop(3), "Shop", "Sells things.", {"count"}, "agent:main:main pays 6"),
        (partial(Shop(3), count=4), "Shop", "Sells things.", set(), "agent:main:main pays 12"),
    ],
)
def test_methods_partials_and_callable_objects_become_tools(
    callable_: Any, name: str, description: str, takes: set[str], answer: str | None
) -> None:
    made = tool(callable_)
    assert (made.name, made.description, set(made.arguments.__struct_fields__)) == (name, description, takes)
    given = {"a": 1} if "a" in takes else {"count": 2} if "count" in takes else {}
    told = run(made, msgspec.json.encode(given).decode())
    assert told.text == answer if answer else told.is_error


def test_what_a_partial_has_bound_is_no_argument_of_a_models() -> None:
    assert "is not a parameter" in run(tool(partial(add, b=2)), '{"a": 1, "b": 7}').text


def test_the_longest_name_is_taken_and_a_name_may_be_given_to_anything() -> None:
    assert run(tool(name="x" * 64)(partial(add, b=2)), '{"a": 1}').text == "3"


@pytest.mark.parametrize(
    "text",
    [
        "Say it.\n\nArgs:\n    words: what\n        to say\n    loud (bool): how\n",
        "Say it.\n\n:param words: what\n    to say\n:param bool loud: how\n:type loud: bool\n:returns: nothing\n",
        "Say it.\n\nParameters\n----------\nwords : str\n    what\n    to say\nloud\n    how\n",
    ],
)
def test_parameters_are_described_by_the_docstring_in_three_styles(text: str) -> None:
    def say(words: str, loud: bool = False) -> None: ...

    say.__doc__ = text
    made = tool(say)
    properties: Any = made.schema["properties"]
    assert made.description == "Say it."
    assert {name: form["description"] for name, form in properties.items()} == {"words": "what to say", "loud": "how"}


def test_sections_behind_the_parameters_stay_in_the_description() -> None:
    def say(words: str) -> None: ...

    say.__doc__ = "Say it.\n\nParameters\n----------\nwords\n    what\n\nReturns\n-------\nNone\n"
    assert tool(say).description == "Say it.\n\nReturns\n-------\nNone"


@pytest.mark.parametrize("approval", ["always", True, ""])
def test_an_approval_must_be_one_of_its_words(approval: Any) -> None:
    with pytest.raises(BadInput, match="approval: must be ask, never, or None"):
        tool(name="x", approval=approval)(lambda: None)


def test_a_tool_is_made_of_something_that_can_be_called() -> None:
    with pytest.raises(BadInput, match="function: must be a function, a method or another callable"):
        tool(name="x")(7)  # type: ignore[arg-type]


# ---- arguments -------------------------------------------------------------------------------------------------------


@tool
async def draw(
    at: Point, size: Annotated[int, msgspec.Meta(ge=1, le=9)] = 3, replace_all: bool = False, note: str | None = None
) -> str:
    """Draw."""
    return f"{at.x},{at.y} {size} {replace_all} {note}"


DRAW_TAKES = (
    "It takes: at (an object, required), size (an integer from 1 to 9), replaceAll (true or false), note (text)."
)


@proves("1.names.2", "Tool parameters are camelCase")
@pytest.mark.parametrize(
    ("raw", "text"),
    [
        ('{"at": {"x": 1}}', "1,0 3 False None"),
        ('{"at": {"x": 1, "y": 2}, "size": 9, "replaceAll": true, "note": "n"}', "1,2 9 True n"),
        ('{"at": {"x": 1.0, "y": null}, "size": null, "replaceAll": null, "note": null}', "1,0 3 False None"),
    ],
)
def test_arguments_arrive_typed_under_their_own_names(raw: str, text: str) -> None:
    assert run(draw, raw) == ToolResult(text)


@proves("7.input.1", "Input is validated at its boundary, with a typed error that names the field")
@pytest.mark.parametrize(
    ("raw", "told"),
    [
        ("", "draw: at: is required: an object."),
        ("  ", "draw: at: is required: an object."),
        ("{}", "draw: at: is required: an object."),
        ('{"at": {}}', "draw: at.x: is required: an integer."),
        ('{"at": {"x": "one"}}', "draw: at.x: must be an integer (got 'one')."),
        ('{"at": {"x": 1}, "size": 0}', "draw: size: must be an integer from 1 to 9 (got 0)."),
        ('{"at": {"x": 1}, "size": 10}', "draw: size: must be an integer from 1 to 9 (got 10)."),
        ('{"at": {"x": 1}, "replace_all": true}', "draw: replace_all: is not a parameter (did you mean replaceAll?)."),
        ('{"at": {"x": 1}, "zzz": true}', "draw: zzz: is not a parameter."),
        ("[]", "draw: arguments: must be an object (got [])."),
        ("null", "draw: arguments: must be an object (got null)."),
        ('{"at": ', "draw: arguments: must be one JSON object; this is cut off."),
        ("nonsense", "draw: arguments: must be one JSON object; this is malformed at byte 4."),
        ("\ud800", "draw: arguments: must be one JSON object; this is not readable as JSON."),
        ('{"at":' * 5000, "draw: "),
        ('{"note":' + "[" * 100_000, "draw: "),
    ],
)
def test_wrong_arguments_are_told_by_field_with_what_would_be_right(raw: str, told: str) -> None:
    result = run(draw, raw)
    assert result.is_error
    assert result.text.startswith(told)
    assert result.text.endswith(DRAW_TAKES)


def test_a_huge_unknown_field_is_told_short() -> None:
    result = run(draw, '{"at": {"x": 1}, "' + "q" * 100_000 + '": 1}')
    assert f"draw: {'q' * 80}: is not a parameter." in result.text
    assert len(result.text) < 400


def test_a_tool_without_arguments_says_so() -> None:
    @tool
    def now() -> str:
        return "noon"

    assert run(now, "") == ToolResult("noon")
    assert run(now, '{"a": 1}') == ToolResult("now: a: is not a parameter. It takes no arguments.", True)


def test_an_argument_that_may_be_anything_is_shown_so() -> None:
    @tool
    def show(what: Any, which: Literal[1, 2] = 1) -> Any:
        return what

    assert show.usage == "It takes: what (a value that its description allows, required), which (one of 1, 2)."
    assert run(show, '{"what": [1, null]}') == ToolResult("[1,null]")


def test_the_context_is_given_and_never_taken_from_a_model() -> None:
    @tool
    def who(context: ToolContext) -> str:
        return context.call_key

    assert run(who, "{}") == ToolResult("agent:main:main#3.1")
    assert run(who, '{"context": {}}').is_error


@pytest.mark.parametrize("kind", [ToolContext, "ToolContext", Annotated[ToolContext, "where"], ToolContext | None])
def test_a_context_is_known_however_its_type_is_written(kind: Any) -> None:
    def who(at: int, ctx=None) -> str:  # type: ignore[no-untyped-def]
        return f"{at} {ctx.session}"

    who.__annotations__["ctx"] = kind
    made = tool(who)
    assert made.context_parameter == "ctx"
    assert "ctx" not in str(made.schema)
    assert run(made, '{"at": 1}').text == "1 agent:main:main"


def test_a_default_that_can_change_is_new_for_each_call() -> None:
    @tool
    def grow(items: list[int] = ONE) -> list[int]:
        items.append(2)
        return items

    assert run(grow, "{}").text == "[1,2]"
    assert run(grow, "{}").text == "[1,2]"
    assert ONE == [1]


# ---- results ---------------------------------------------------------------------------------------------------------


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("words", "words"),
        ("", ""),
        (None, "null"),
        (3, "3"),
        ({"a": [1, True]}, '{"a":[1,true]}'),
        (Point(1, 2), '{"x":1,"y":2}'),
        ("a\x00b\ud800c", "a␀b?c"),
        (ToolResult("bad", is_error=True), ToolResult("bad", is_error=True)),
        (ToolResult("fine\x00"), "fine␀"),
    ],
)
def test_what_is_not_text_is_json(value: object, text: str | ToolResult) -> None:
    @tool
    async def give() -> Any:
        return value

    assert run(give, "") == (text if isinstance(text, ToolResult) else ToolResult(text))


def test_what_cannot_be_json_is_an_error() -> None:
    @tool
    async def give() -> Any:
        return threading.Lock()

    result = run(give, "")
    assert result.is_error
    assert result.text.startswith("give: its result cannot be written as JSON (TypeError: ")


@pytest.mark.parametrize(
    ("raised", "text"),
    [
        (ValueError("no such thing"), "fail: ValueError: no such thing"),
        (ValueError(), "fail: ValueError"),
        (BadInput("path", "must be short", "x"), "fail: path: must be short (got 'x')"),
        (TimeoutError("theirs"), "fail: TimeoutError: theirs"),
        (SystemExit(3), "fail: SystemExit: 3"),
        (KeyboardInterrupt(), "fail: KeyboardInterrupt"),
        (GeneratorExit("closed"), "fail: GeneratorExit: closed"),
        (BaseException("abort"), "fail: BaseException: abort"),
        (asyncio.CancelledError("mine"), "fail: it was cancelled from inside"),
        (BaseExceptionGroup("both", [SystemExit(1)]), "fail: BaseExceptionGroup: both (1 sub-exception)"),
        (StopIteration(), "fail: RuntimeError: "),
        (Unspeakable(), "fail: Unspeakable: (its message cannot be shown)"),
        (ExceptionGroup("both", [ValueError("a")]), "fail: ExceptionGroup: both (1 sub-exception)"),
    ],
)
@pytest.mark.parametrize("kind", ["async", "plain"])
def test_what_a_tool_raises_is_an_error_result(kind: str, raised: BaseException, text: str) -> None:
    async def fail_async() -> None:
        raise raised

    def fail_plain() -> None:
        raise raised

    result = run(tool(name="fail")(fail_async if kind == "async" else fail_plain), "")
    assert result.is_error
    assert result.text.startswith(text)


def test_an_error_is_bounded() -> None:
    @tool
    async def fail() -> None:
        raise ValueError("x" * 10_000)

    text = run(fail, "").text
    assert text.startswith("fail: ValueError: xxx")
    assert len(text) < MAX_ERROR_CHARS + 80
    assert text.endswith(" of 10018 characters are not shown]")


@pytest.mark.parametrize(("length", "tail"), [(10, ""), (11, "\n[cut: 1 of 11 characters are not shown]")])
def test_a_long_result_is_cut_and_says_how_much(length: int, tail: str) -> None:
    @tool(max_chars=10)
    def give() -> str:
        return "x" * length

    assert run(give, "") == ToolResult("x" * 10 + tail)
    assert capped("x" * length, 10) == "x" * 10 + tail


# ---- time and cancellation -------------------------------------------------------------------------------------------


def test_a_tool_out_of_time_is_stopped_and_says_so() -> None:
    stopped = []

    @tool(timeout=0.01)
    async def wait() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            stopped.append(True)
            raise

    assert run(wait, "") == ToolResult(
        "wait: stopped after 0.01 s: it reached its timeout; its effects are unknown", True
    )
    assert stopped == [True]


def test_a_plain_tool_runs_beside_the_loop_and_may_return_something_to_await() -> None:
    @tool
    def where() -> Any:
        async def later() -> str:
            return inside

        inside = threading.current_thread().name
        return later()

    assert run(where, "").text != threading.current_thread().name


def test_a_plain_tool_out_of_time_is_answered_for_while_its_thread_goes_on() -> None:
    free = threading.Event()

    @tool(timeout=0.01)
    def wait() -> None:
        free.wait(30)
        raise ValueError("unheard")

    async def main() -> ToolResult:
        result = await wait.call("", CONTEXT)
        free.set()
        return result

    assert "stopped after 0.01 s" in asyncio.run(main()).text


@pytest.mark.parametrize("kind", ["async", "plain"])
def test_the_callers_cancellation_passes_through(kind: str) -> None:
    async def main() -> None:
        begun, free = asyncio.Event(), threading.Event()
        loop = asyncio.get_running_loop()

        async def wait_async() -> None:
            begun.set()
            await asyncio.Event().wait()

        def wait_plain() -> None:
            loop.call_soon_threadsafe(begun.set)
            free.wait(30)

        made = tool(name="wait")(wait_async if kind == "async" else wait_plain)
        task = asyncio.create_task(made.call("", CONTEXT))
        await begun.wait()
        task.cancel()
        free.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main())


def test_a_cancellation_from_inside_is_the_tools_failure() -> None:
    @tool
    async def fragile() -> None:
        raise asyncio.CancelledError

    assert run(fragile, "") == ToolResult("fragile: it was cancelled from inside", True)
