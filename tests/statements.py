"""`@proves(id, words)` names the statement of the contract that a test proves.

The words stand at one test of each statement; the other tests that prove it give the id alone. `docs/contract_page.py`
reads the decorators from the syntax trees of the tests and makes `docs/contract-tests.md` of them, so the decorator
itself does nothing. An id is `<section>.<part>.<number>`; sections and parts are listed in `docs/contract_page.py`.
"""

from collections.abc import Callable
from typing import TypeVar

Test = TypeVar("Test")


def proves(statement: str, words: str = "", *, row: str = "") -> Callable[[Test], Test]:
    """Mark a test, or one row of its table, as a proof of a statement."""
    return lambda test: test
