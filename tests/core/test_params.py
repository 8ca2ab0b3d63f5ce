"""The one reader of parameters: what it takes, and how it says what is wrong."""

import datetime
import enum
import re
from decimal import Decimal
from typing import Annotated, Any, ClassVar, Literal

import msgspec
import pytest
from msgspec import UNSET, Meta, Struct, UnsetType

from fledge.core.params import LARGEST, also_called, as_written, described, formerly, near, read_params
from fledge.errors import BadInput, NotFound, Refused
from tests.statements import proves


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Point(Struct, forbid_unknown_fields=True):
    x: int
    y: Annotated[int, Meta(ge=-5)] = 0
    note: str | None = None


class Loose(Struct):
    name: str = ""


class Cat(Struct, tag=True):
    lives: int = 9


class Dog(Struct, tag=True):
    age: int = 1


class Everything(Struct, kw_only=True, rename="camel", forbid_unknown_fields=True):
    text: str
    long_name: Annotated[str, Meta(max_length=5)] = ""
    words: Annotated[str, Meta(min_length=1)] = "w"
    code: Annotated[str, Meta(min_length=2, max_length=3)] = "ab"
    wide: Annotated[str, Meta(min_length=2)] = "ab"
    shaped: Annotated[str, Meta(pattern="^a+$")] = "a"
    count: Annotated[int, Meta(ge=1, le=9)] = 1
    whole: int = 0
    ratio: Annotated[float, Meta(gt=0)] = 1.0
    share: Annotated[float, Meta(gt=0, le=1)] = 1.0
    below: Annotated[float, Meta(lt=3)] = 1.0
    most: Annotated[int, Meta(le=3)] = 1
    even: Annotated[int, Meta(multiple_of=2)] = 2
    yes: bool = False
    level: Literal["low", "high"] = "low"
    empty: Literal["", "on"] = ""
    only: Literal["one"] = "one"
    number: Literal[1, 2] = 1
    colour: Colour = Colour.RED
    kinds: Annotated[tuple[Literal["a", "b"], ...], Meta(max_length=2)] = ()
    some: Annotated[list[int], Meta(min_length=1)] | None = None
    pair: tuple[int, str] | None = None
    points: list[Point] = []
    by_name: dict[str, int] = {}
    by_number: dict[int, int] = {}
    anything: Any = None
    free: dict[str, Any] | None = None
    point: Point | None = None
    loose: Loose | None = None
    pet: Cat | Dog | None = None
    wanted: Literal["all"] | Annotated[int, Meta(ge=1)] | None = None
    when: datetime.datetime | None = None
    cost: Decimal | None = None
    data: bytes = b""
    patch: Annotated[str, Meta(max_length=5)] | UnsetType = UNSET
    nullable: int | None = 5
    session: Annotated[str, Meta(min_length=1), formerly("sessionKey", "key")] = "main"
    agent: Annotated[str, also_called("agentId")] | None = None


def read(**given: Any) -> Everything:
    return read_params(Everything, {"text": "t", **given}).params


def refusal(given: object, **options: Any) -> str:
    with pytest.raises(BadInput) as refused:
        read_params(Everything, given, **options)
    return str(refused.value)


@pytest.mark.parametrize(
    ("given", "field", "value"),
    [
        ({"longName": "hello"}, "long_name", "hello"),
        ({"count": 9.0}, "count", 9),
        ({"whole": 10**30}, "whole", 10**30),
        ({"ratio": 2}, "ratio", 2.0),
        ({"level": "high"}, "level", "high"),
        ({"number": 2}, "number", 2),
        ({"colour": "blue"}, "colour", Colour.BLUE),
        ({"kinds": ["a", "b"]}, "kinds", ("a", "b")),
        ({"kinds": ("a",)}, "kinds", ("a",)),
        ({"some": [1]}, "some", [1]),
        ({"pair": [1, "x"]}, "pair", (1, "x")),
        ({"points": [{"x": 1}, {"x": 2, "y": None}]}, "points", [Point(1), Point(2)]),
        ({"byName": {"a": 1}}, "by_name", {"a": 1}),
        ({"byNumber": {"7": 1}}, "by_number", {7: 1}),
        ({"anything": [None, {"a": 1}]}, "anything", [None, {"a": 1}]),
        ({"free": {"deep": {"er": None}}}, "free", {"deep": {"er": None}}),
        ({"loose": {"name": "n", "unknown": 1}}, "loose", Loose("n")),
        ({"pet": {"type": "Dog", "age": 3}}, "pet", Dog(3)),
        ({"wanted": "all"}, "wanted", "all"),
        ({"wanted": 2}, "wanted", 2),
        ({"when": "2026-01-31T12:00:00Z"}, "when", datetime.datetime(2026, 1, 31, 12, tzinfo=datetime.UTC)),
        ({"cost": "1.50"}, "cost", Decimal("1.50")),
        ({"data": "aGk="}, "data", b"hi"),
        ({"patch": "p"}, "patch", "p"),
    ],
)
def test_what_fits_is_read(given: dict[str, Any], field: str, value: object) -> None:
    assert getattr(read(**given), field) == value


class Advising(Struct, forbid_unknown_fields=True):
    INSTEAD: ClassVar = {"taskName": "write label"}
    label: str = ""


def test_a_name_of_another_system_is_refused_with_what_to_write_instead() -> None:
    for given, told in (("taskName", ": write label"), ("labl", " (did you mean label?)")):
        with pytest.raises(BadInput) as refused:
            read_params(Advising, {given: "x"})
        assert str(refused.value) == f"{given}: is not a parameter{told}"


class Plain(Struct, forbid_unknown_fields=True):
    name: str
    times: int = 1
    loud: bool = False


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({}, "name: is required: text"),
        ({"times": 2}, "name: is required: text"),
        ({"name": "a", "times": True}, "times: must be an integer (got true)"),
        ({"name": "a", "loud": 1}, "loud: must be true or false (got 1)"),
        ({"name": "a", "tims": 1}, "tims: is not a parameter (did you mean times?)"),
        ({"name": b"a"}, "name: must be text"),
        ({1: "a"}, "1: is not a parameter"),
    ],
)
def test_parameters_of_plain_types_are_held_to_them(given: dict[Any, Any], told: str) -> None:
    assert read_params(Plain, {"name": "a", "times": 2.0, "loud": None}).params == Plain("a", 2)
    assert read_params(Plain, {"name": "a", "times": 2, "loud": True}).params == Plain("a", 2, True)
    with pytest.raises(BadInput, match=f"^{re.escape(told)}"):
        read_params(Plain, given)


@pytest.mark.parametrize(
    ("given", "field", "value"),
    [
        ({"count": "9"}, "count", 9),
        ({"count": "9.0"}, "count", 9),
        ({"whole": "-20"}, "whole", -20),
        ({"ratio": "2.5e-1"}, "ratio", 0.25),
        ({"yes": "true"}, "yes", True),
        ({"yes": "false"}, "yes", False),
        ({"number": "2"}, "number", 2),
        ({"some": ["1", 2]}, "some", [1, 2]),
        ({"points": [{"x": "1", "note": "2"}]}, "points", [Point(1, note="2")]),
        ({"byName": {"a": "1"}}, "by_name", {"a": 1}),
        ({"wanted": "2"}, "wanted", 2),
        ({"wanted": "all"}, "wanted", "all"),
        ({"nullable": "7"}, "nullable", 7),
        ({"text": "2"}, "text", "2"),
        ({"longName": "true"}, "long_name", "true"),
        ({"anything": "2"}, "anything", "2"),
        ({"patch": "2"}, "patch", "2"),
        ({"cost": "1.50"}, "cost", Decimal("1.50")),
    ],
)
def test_a_text_that_is_exactly_a_number_true_or_false_is_read_as_that_where_no_text_fits_if_the_caller_allows_it(
    given: dict[str, Any], field: str, value: object
) -> None:
    found = getattr(read_params(Everything, {"text": "t", **given}, unquote=True).params, field)
    assert (type(found), found) == (type(value), value)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"count": "10"}, "count: must be an integer from 1 to 9 (got '10')"),
        ({"count": "2.5"}, "count: must be an integer from 1 to 9 (got '2.5')"),
        ({"whole": " 2"}, "whole: must be an integer (got ' 2')"),
        ({"whole": "02"}, "whole: must be an integer (got '02')"),
        ({"whole": "2s"}, "whole: must be an integer (got '2s')"),
        ({"whole": "٢"}, "whole: must be an integer"),
        ({"whole": ""}, "whole: must be an integer"),
        ({"whole": "true"}, "whole: must be an integer (got 'true')"),
        ({"whole": "9" * 5000}, "whole: must be an integer"),
        ({"ratio": "NaN"}, "ratio: must be a number above 0"),
        ({"ratio": "1e999"}, "ratio: must be a number above 0"),
        ({"yes": "True"}, "yes: must be true or false (got 'True')"),
        ({"yes": "1"}, "yes: must be true or false (got '1')"),
        ({"longName": 2}, "longName: must be text of at most 5 characters (got 2)"),
        ({"only": "2"}, "only: must be \"one\" (got '2')"),
        ({"nullable": "null"}, "nullable: must be an integer"),
        ({"points": [{"x": "one"}]}, "points[0].x: must be an integer (got 'one')"),
    ],
)
def test_any_other_text_for_a_number_is_refused_as_it_was_given(given: dict[str, Any], told: str) -> None:
    assert refusal({"text": "t", **given}, unquote=True).startswith(told)


def test_a_number_in_quotes_is_refused_where_the_caller_does_not_allow_it() -> None:
    assert refusal({"text": "t", "count": "2"}) == "count: must be an integer from 1 to 9 (got '2')"


@proves("7.input.32", "`null` for a parameter that may be left out means that it was not given")
def test_null_for_a_parameter_that_may_be_left_out_means_not_given() -> None:
    names = set(Everything.__struct_encode_fields__) - {"text", "nullable"}
    assert read(**dict.fromkeys(names)) == read()
    assert read(session=None, sessionKey="talk").session == "talk"


def test_null_where_null_is_a_value_of_its_own_is_kept() -> None:
    assert read(nullable=None).nullable is None


def test_null_for_what_is_required_is_refused() -> None:
    assert refusal({"text": None}) == "text: must be text (got null)"


@proves("7.input.33", "A refused parameter is named as the caller wrote it, with what it must be and what was given")
@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"text": 5}, "text: must be text (got 5)"),
        ({"longName": "x" * 6}, "longName: must be text of at most 5 characters (got 'xxxxxx')"),
        ({"words": ""}, "words: must be text that is not empty (got '')"),
        ({"code": "a"}, "code: must be text of 2 to 3 characters (got 'a')"),
        ({"wide": "a"}, "wide: must be text of at least 2 characters (got 'a')"),
        ({"shaped": "b"}, "shaped: must be text like ^a+$ (got 'b')"),
        ({"count": 0}, "count: must be an integer from 1 to 9 (got 0)"),
        ({"count": 10}, "count: must be an integer from 1 to 9 (got 10)"),
        ({"count": "3"}, "count: must be an integer from 1 to 9 (got '3')"),
        ({"count": True}, "count: must be an integer from 1 to 9 (got true)"),
        ({"count": 1.5}, "count: must be an integer from 1 to 9 (got 1.5)"),
        ({"whole": float("inf")}, "whole: must be an integer (got inf)"),
        ({"ratio": 0}, "ratio: must be a number above 0 (got 0)"),
        ({"ratio": float("nan")}, "ratio: must be a number above 0 (got nan)"),
        ({"share": 1.5}, "share: must be a number above 0, at most 1 (got 1.5)"),
        ({"below": 3}, "below: must be a number below 3 (got 3)"),
        ({"most": 4}, "most: must be an integer of at most 3 (got 4)"),
        ({"even": 3}, "even: must be an integer"),
        ({"yes": 1}, "yes: must be true or false (got 1)"),
        ({"level": "mid"}, "level: must be one of high, low (got 'mid')"),
        ({"empty": "off"}, "empty: must be one of \"\", on (got 'off')"),
        ({"only": "two"}, "only: must be \"one\" (got 'two')"),
        ({"number": True}, "number: must be one of 1, 2 (got true)"),
        ({"colour": "green"}, "colour: must be one of red, blue (got 'green')"),
        ({"kinds": "a"}, "kinds: must be a list of at most 2 elements, each one of a, b (got 'a')"),
        ({"kinds": [1] * 3}, "kinds: must be a list of at most 2 elements, each one of a, b (got [1,1,1])"),
        ({"kinds": ["a", "c"]}, "kinds[1]: must be one of a, b (got 'c')"),
        ({"some": []}, "some: must be a list that is not empty, each an integer (got [])"),
        ({"pair": [1]}, "pair: must be a value that its description allows"),
        ({"points": [{"x": 1}, {"x": "1"}]}, "points[1].x: must be an integer (got '1')"),
        ({"points": [{}]}, "points[0].x: is required: an integer"),
        ({"byName": {"a": "b"}}, "byName.a: must be an integer (got 'b')"),
        ({"byName": []}, "byName: must be an object, each value an integer (got [])"),
        ({"byNumber": {"x": 1}}, "byNumber: must be an object, each value an integer"),
        ({"free": 3}, "free: must be an object (got 3)"),
        ({"point": {"x": 1, "z": 2}}, "point.z: is not a parameter"),
        ({"point": {"x": 1, "nota": 2}}, "point.nota: is not a parameter (did you mean note?)"),
        ({"pet": {"type": "Cow"}}, "pet.type: must be an object"),
        ({"wanted": 0}, 'wanted: must be "all" or an integer of at least 1 (got 0)'),
        ({"when": "soon"}, "when: must be a date and time such as 2026-01-31T12:00:00Z (got 'soon')"),
        ({"data": "%"}, "data: must be text in base64 (got '%')"),
        ({"patch": 1}, "patch: must be text of at most 5 characters (got 1)"),
        ({"long_name": ""}, "long_name: is not a parameter (did you mean longName?)"),
        ({"zzzzzz": 1}, "zzzzzz: is not a parameter"),
        ({"q" * 100: 1}, f"{'q' * 80}: is not a parameter"),
        ({"point": {"x": 1, 7: 2}}, "point.7: is not a parameter"),
        ({"sessionKey": ""}, "sessionKey: must be text that is not empty (got '')"),
        ({"session": "a", "key": "b"}, "key: is another name of session, which was given too: leave one of them out"),
        ({"longName": {"a": [True]}}, 'longName: must be text of at most 5 characters (got {"a":[true]})'),
    ],
)
def test_what_does_not_fit_is_refused_with_its_field_what_is_right_and_what_was_given(
    given: dict[str, Any], told: str
) -> None:
    assert refusal({"text": "t", **given}) == told


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({}, "text: is required: text"),
        ([], "params: must be an object (got [])"),
        (None, "params: must be an object (got null)"),
    ],
)
def test_parameters_that_are_none_are_refused(given: object, told: str) -> None:
    assert refusal(given) == told


def test_a_value_that_nests_too_deep_is_refused() -> None:
    deep: dict[str, Any] = {}
    for _ in range(5000):
        deep = {"inner": [deep]}
    with pytest.raises(BadInput, match=r"^arguments: must not nest so deep$"):
        read_params(Recursive, deep, "arguments")
    with pytest.raises(BadInput, match=r"^text: must be text \(got a value that nests too deep\)$"):
        read_params(Everything, {"text": deep})


class Recursive(Struct):
    inner: "list[Recursive]" = []


# ---- names -----------------------------------------------------------------------------------------------------------


def test_an_old_name_is_read_and_said() -> None:
    read = read_params(Everything, {"text": "t", "sessionKey": "talk", "agentId": "a"})
    assert (read.params.session, read.params.agent) == ("talk", "a")
    assert read.old_names == {"sessionKey": "session"}
    assert read.written == {"agent": "agentId", "session": "sessionKey", "key": "sessionKey"}


def test_a_caller_may_have_names_of_its_own() -> None:
    spelled = {"words_of_it": "text", "long_name": "longName"}
    read = read_params(Everything, {"words_of_it": "t", "long_name": "x"}, "call", spelled)
    assert (read.params.text, read.params.long_name, read.old_names) == ("t", "x", {})
    assert refusal({"words_of_it": 3}, spelled=spelled) == "words_of_it: must be text (got 3)"
    assert refusal({"longname": 3}, spelled=spelled) == "longname: is not a parameter (did you mean long_name?)"
    assert refusal({}, spelled=spelled) == "words_of_it: is required: text"


@pytest.mark.parametrize(
    ("field", "told"),
    [("planMode", "plan_mode"), ("planMode[0].x", "plan_mode[0].x"), ("planMode.x", "plan_mode.x"), ("a.b", "a.b")],
)
def test_a_later_error_is_told_by_the_callers_name(field: str, told: str) -> None:
    error = as_written(BadInput(field, "must be so", 3), {"planMode": "plan_mode"})
    assert isinstance(error, BadInput)
    assert (str(error), error.got) == (f"{told}: must be so (got 3)", 3)


def test_a_refusal_that_begins_with_a_field_names_it_as_the_caller_wrote_it_and_another_error_stays() -> None:
    refused = as_written(Refused("error", "planMode: not here: ask"), {"planMode": "plan_mode"})
    assert str(refused) == "plan_mode: not here: ask"
    for error in (Refused("error", "no slot: wait"), NotFound("planMode: none")):
        assert as_written(error, {"planMode": "plan_mode"}) is error


@pytest.mark.parametrize(
    ("word", "meant"), [("Thinkin", "thinking"), ("THINKING", "thinking"), ("zzz", None), ("x" * 10_000, None)]
)
def test_a_near_name_is_found_in_any_case(word: str, meant: str | None) -> None:
    assert near(word, ["thinking", "model"]) == meant


def test_every_word_for_a_type_is_ours() -> None:
    """None of them is a name of Python's or of a library's."""
    for one in msgspec.inspect.type_info(Everything).fields:  # type: ignore[attr-defined]
        assert not re.search(r"\b(str|int|float|bool|dict|tuple|None|Struct|array|Expected)\b", described(one.type))


@pytest.mark.parametrize(
    ("refused", "reason"),
    [
        (Refused("error", "agentId: there is none"), "agent: there is none"),
        (Refused("error", "agentId is not in the list"), "agentId is not in the list"),
        (Refused("error", "label: it is taken"), "label: it is taken"),
        (NotFound("agentId: there is none"), "agentId: there is none"),
    ],
)
def test_a_refusal_that_begins_with_a_field_names_it_as_the_caller_wrote_it(refused: Refused, reason: str) -> None:
    error = as_written(refused, {"agentId": "agent"})
    assert isinstance(error, type(refused))
    assert (error.status, error.reason) == (refused.status, reason)


class Sized(Struct):
    """Numbers with bounds, and without."""

    count: Annotated[int, Meta(ge=1)] | None = None
    share: Annotated[float, Meta(ge=0)] = 0.0
    any_int: int = 0
    any_float: float = 0.0


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"count": LARGEST}, ""),
        ({"count": LARGEST + 1}, "count: must be an integer of at least 1, and smaller than 2^63"),
        ({"count": 10**5000}, "count: must be an integer of at least 1, and smaller than 2^63"),
        ({"count": -(10**400)}, "count: must be an integer of at least 1, and smaller than 2^63"),
        ({"count": 1e308}, "count: must be an integer of at least 1, and smaller than 2^63"),
        ({"share": 1e19}, "share: must be a number of at least 0, and smaller than 2^63"),
        ({"share": float("inf")}, "share: must be a number of at least 0 (got inf)"),
        ({"any_int": 10**400, "share": 1}, ""),
        ({"any_int": float("inf")}, "any_int: must be an integer (got inf)"),
        ({"any_float": 1e308, "share": 1}, ""),
    ],
)
def test_a_number_with_bounds_is_smaller_than_two_to_the_63(given: dict[str, Any], words: str) -> None:
    if not words:
        assert {name: getattr(read_params(Sized, given).params, name) for name in given} == given
        return
    with pytest.raises(BadInput) as refused:
        read_params(Sized, given)
    assert str(refused.value) == words


class Said(Struct, forbid_unknown_fields=True):
    """Parameters that are texts, one of them bounded."""

    words: str = ""
    short: Annotated[str, Meta(max_length=5)] = ""


@pytest.mark.parametrize("field", ["words", "short"])
def test_half_of_a_surrogate_pair_is_refused_by_the_name_of_its_field(field: str) -> None:
    expected = rf"^{field}: must be valid Unicode: character 3 is half of a surrogate pair \('\\ud83d'\)$"
    with pytest.raises(BadInput, match=expected):
        read_params(Said, {field: "ab\ud83d"})
    assert getattr(read_params(Said, {field: "ab😀"}).params, field) == "ab😀"
