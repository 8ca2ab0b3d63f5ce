"""Which rows a commit has changed: what the next writer reads is what was noted."""

from collections.abc import Callable
from typing import Any

import pytest

from fledge.store.changes import MOST_KEYS, ChangedRows, RowChanges, decode


def noted(*notes: Callable[[RowChanges], None]) -> dict[str, ChangedRows | None]:
    """What another writer reads of these."""
    changes = RowChanges()
    for note in notes:
        note(changes)
    return decode(changes.encode())


@pytest.mark.parametrize("key", ["a", "", "a\0b", "\ud7ff\U0001f600", ("tree", "a"), (20_000, "main")], ids=repr)
def test_the_key_of_a_row_is_read_as_it_was_noted(key: Any) -> None:
    assert noted(lambda c: c.add("t", [key])) == {"t": ChangedRows({key}, set())}


def test_a_row_in_no_inbox_has_a_group_too() -> None:
    assert noted(lambda c: c.add("inbox", ["a"], [None])) == {"inbox": ChangedRows({"a"}, {None})}


def test_rows_that_were_appended_name_their_table() -> None:
    assert noted(lambda c: c.add("entries")) == {"entries": ChangedRows(set(), set())}


def test_more_rows_of_a_table_come_together() -> None:
    found = noted(lambda c: c.add("t", ["a"], ["x"]), lambda c: c.add("t", ["b", "a"]), lambda c: c.add("u", ["a"]))
    assert found.keys() == {"t", "u"}
    rows = found["t"]
    assert rows is not None
    assert rows == ({"a", "b"}, {"x"})


def test_once_any_row_may_have_changed_none_is_named() -> None:
    assert noted(lambda c: c.add("t", ["a"]), lambda c: c.update(t=None), lambda c: c.add("t", ["b"])) == {"t": None}


def test_of_many_rows_none_is_named() -> None:
    at_most = noted(lambda c: c.add("t", map(str, range(MOST_KEYS))))["t"]
    assert at_most is not None
    assert len(at_most.keys) == MOST_KEYS
    assert noted(lambda c: c.add("t", map(str, range(MOST_KEYS + 1)))) == {"t": None}


def test_nothing_is_noted_of_a_transaction_that_changed_nothing() -> None:
    changes = RowChanges()
    assert not changes
    changes.add("t", ["a"])
    assert changes
    changes.clear()
    assert not changes
