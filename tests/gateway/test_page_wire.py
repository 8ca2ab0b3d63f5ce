"""What the page asks of the gateway is on the wire: methods, their parameters, and the fields of what they answer.

The page has no types to compile. In their place a name says what a value is (`SHAPES`): a variable called `row` holds a
`RunRow`, wherever it stands, and every field that is read from it is in the published schema.
"""

import re
from collections.abc import Iterator
from importlib.resources import files
from typing import Any

import pytest

from docs import shapes_page
from fledge.commands.methods import METHODS, schema
from fledge.commands.wire import camel

SOURCES = sorted(file.name for file in files("fledge.web").iterdir() if file.name.endswith(".js"))
SCHEMA = schema()
ENTRIES = ("MessageEntry", "ReplyEntry", "ResultEntry", "CompletionsEntry", "NoteEntry", "LineEntry")
SHAPES = {
    "row": ("RunRow",),
    "kid": ("RunRow",),
    "conversation": ("SessionRow",),
    "question": ("Question", "CallAsked"),
    "plan": ("Plan",),
    "entry": ENTRIES,
    "toolCall": ("CallValue",),
    "completion": ("CompletionValue",),
    "stats": ("Stats",),
    "trace": ("DeliveryTrace",),
    "artifact": ("Artifact",),
    "image": ("ImageShown",),
}
"""The shapes that a variable of this name may have."""
OF_THE_PAGE = {"entry": {"line", "state", "again"}}
"""Fields that the page itself gives to such a value: an answer to a slash command stands among the entries."""


def source(name: str) -> str:
    return files("fledge.web").joinpath(name).read_text()


def fields(shapes: tuple[str, ...]) -> set[str]:
    """The fields of these shapes on the wire."""
    parts: dict[str, Any] = {name.rpartition(".")[2]: part for name, part in SCHEMA["$defs"].items()}
    return {field for shape in shapes for field in parts[shape]["properties"]}


def calls(text: str) -> Iterator[tuple[str, list[str]]]:
    """The methods that a source calls, each with the parameters that are written there."""
    for method, given in re.findall(r'\b(?:call|change)\("([^"]+)"(?:, \{([^{}]*)\})?', text):
        yield method, re.findall(r"(?:^|,)\s*(\w+)(?=\s*[:,]|\s*$)", given)


@pytest.mark.parametrize("name", SOURCES)
def test_every_method_that_the_page_calls_is_there_and_takes_these_parameters(name: str) -> None:
    for method, params in calls(source(name)):
        assert method in METHODS
        known = {camel(field) for field in METHODS[method].params.__struct_fields__}
        assert set(params) - known == set(), method


def test_the_page_calls_methods_with_parameters_at_all() -> None:
    found = [one for name in SOURCES for one in calls(source(name))]
    assert ("sessions.stop", ["session", "below"]) in found
    assert len({method for method, _ in found}) > 15


@pytest.mark.parametrize("name", SOURCES)
def test_every_field_that_the_page_reads_is_on_the_wire(name: str) -> None:
    text = re.sub(r"//.*|/\*.*?\*/", "", source(name), flags=re.S) if name == "shapes.js" else source(name)
    for variable, shapes in SHAPES.items():
        read = set(re.findall(rf"(?<![\w.]){variable}\??\.(\w+)", text))
        for names in re.findall(rf"\{{([^{{}}]*)\}} = {variable}(?![\w.?])", text):
            read |= {re.split(r"[:=]", one)[0].strip() for one in names.split(",")}
        assert read - fields(shapes) - OF_THE_PAGE.get(variable, set()) == set(), variable


def test_a_field_that_is_not_there_would_be_found() -> None:
    assert "costBelowUsd" in fields(SHAPES["row"])
    assert "cost" not in fields(SHAPES["row"])


def test_the_shapes_are_those_of_the_schema() -> None:
    assert shapes_page.TARGET.read_text("utf-8") == shapes_page.page()
