"""The reference has every public name, each explained for a reader who does not know fledge's insides."""

import inspect
import re
from collections.abc import Iterator
from types import ModuleType

import pytest
from docs.reference_page import SECTIONS, SECTIONS_TESTING, VALUES

import fledge
import fledge.testing
from docs import reference_page
from tests.docs.plain_words import VAGUE

MODULES = {fledge: SECTIONS, fledge.testing: SECTIONS_TESTING}
NO_THING = {"__version__"}


def explained() -> Iterator[tuple[str, str]]:
    """The public names, their public methods and fields, each with its docstring."""
    for module in MODULES:
        for name in module.__all__:
            thing = getattr(module, name)
            if name in NO_THING or name in VALUES:
                continue
            yield name, inspect.getdoc(thing) or ""
            if inspect.isclass(thing):
                for method, value in reference_page.methods(thing):
                    yield f"{name}.{method}", inspect.getdoc(value) or ""


@pytest.mark.parametrize(("module", "sections"), MODULES.items(), ids=lambda one: getattr(one, "__name__", ""))
def test_every_public_name_is_in_one_section(module: ModuleType, sections: dict[str, tuple[str, ...]]) -> None:
    shown = [name for names in sections.values() for name in names]
    assert sorted(shown) == sorted(set(module.__all__) - NO_THING)


def test_every_public_name_and_method_has_a_docstring_of_sentences() -> None:
    without = [
        name for name, text in explained() if not re.match(r"[A-Z`].*[.:]$", text.partition("\n\n")[0], re.DOTALL)
    ]
    assert without == []


def test_no_public_docstring_hides_who_does_what() -> None:
    assert [(name, VAGUE.findall(text)) for name, text in explained() if VAGUE.search(text)] == []


def test_the_page_shows_signature_docstring_example_and_fields() -> None:
    page = reference_page.page()
    assert "### fledge.run_sync\n\n```python\nrun_sync(\n    main: Callable[[Fledge], Awaitable[T]],\n" in page
    assert "#### Handle.kill\n\n```python\nawait kill() -> Killing\n```" in page
    assert "```pycon\n>>> run = await fl.spawn(" in page
    assert "| `idempotency_key` | `str` | Spawning again with the same key returns the same run. |" in page


def test_the_pages_are_what_the_docstrings_say_now() -> None:
    assert reference_page.TARGET.read_text("utf-8") == reference_page.page(), "stale: run python -m docs.generate"
    assert reference_page.TESTING.read_text("utf-8") == reference_page.testing_page()
