"""Every public thing has a docstring with an example, and every example does what it shows."""

import ast
import asyncio
import contextlib
import doctest
import inspect
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import fledge
from fledge.models.scripted import echo
from fledge.testing import ScriptedModel
from tests.api.scene import Place
from tests.statements import proves


def documented() -> Iterator[tuple[str, object]]:
    """Public names but errors (whose docstrings are their messages), with the methods of the API's classes."""
    for name in fledge.__all__:
        thing = getattr(fledge, name)
        if name == "__version__" or (inspect.isclass(thing) and issubclass(thing, Exception)):
            continue
        yield name, thing
        if inspect.isclass(thing) and thing.__module__.startswith("fledge.api"):
            for method, value in inspect.getmembers(thing, inspect.isfunction):
                if not method.startswith("_") and value.__module__.startswith("fledge.api"):
                    yield f"{name}.{method}", value


EXAMPLES = {
    name: doctest.DocTestParser().get_examples(inspect.getdoc(thing) or "", name) for name, thing in documented()
}


def test_every_public_thing_has_a_docstring_with_an_example() -> None:
    assert [name for name, examples in EXAMPLES.items() if not examples] == []


async def play(examples: list[doctest.Example], known: dict[str, Any]) -> None:
    """Run examples one after the other; each must print what it shows."""
    for example in examples:
        code = compile(example.source, "example", "single", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            running = eval(code, known)
            if inspect.iscoroutine(running):
                await running
        assert printed.getvalue() == example.want, example.source


@proves("3.plan.9", "… by the API")
@pytest.mark.parametrize("name", [name for name in EXAMPLES if name not in ("connect", "open", "run_sync")])
def test_the_example_does_what_it_shows(name: str, tmp_path: Path) -> None:
    Place(tmp_path).act(lambda fl: play(EXAMPLES[name], {"fl": fl, "fledge": fledge, "asyncio": asyncio}))


@pytest.mark.parametrize("name", ["open", "run_sync"])
def test_the_example_opens_a_real_folder(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FLEDGE_CONFIG", str(tmp_path))
    known = {"fledge": fledge, "asyncio": asyncio, "ScriptedModel": ScriptedModel, "echo": echo}
    asyncio.run(play(EXAMPLES[name], known))
