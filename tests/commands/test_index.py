"""The index of verbs says of each what the table says, so that nobody imports the table to find a verb."""

from fledge.commands.index import HOMES, KEYED, QUERIES, READS
from fledge.commands.methods import METHODS


def test_the_index_names_the_module_of_every_verb() -> None:
    assert {name: one.do.__module__.removeprefix("fledge.commands.") for name, one in METHODS.items()} == HOMES


def test_the_index_names_the_verbs_that_only_read() -> None:
    assert {name for name, one in METHODS.items() if hasattr(one.do, "__wrapped__")} == QUERIES
    assert QUERIES <= READS <= set(METHODS)


def test_the_index_names_the_verbs_that_take_a_key() -> None:
    assert {name for name, one in METHODS.items() if "idempotency_key" in one.params.__struct_fields__} == KEYED
