"""Session keys: what is read, what is forgiven, what is refused."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fledge.core.keys import (
    SessionKey,
    agent_of,
    attached_folder,
    check_agent_id,
    child_key,
    conversation_name,
    is_called,
    is_child_key,
    is_main_key,
    list_kind,
    main_key,
    parse_key,
    project_key,
    short_id,
)
from fledge.errors import BadInput
from tests.statements import proves

AGENT_RULE = "must be 1 to 64 letters, digits, '-' or '_', starting with a letter or digit"
KEY_RULE = "must look like agent:<id>:main or agent:<id>:subagent:<uuid>"


@pytest.mark.parametrize(
    ("value", "agent_id"),
    [
        ("main", "main"),
        ("  Main\n", "main"),
        ("a", "a"),
        ("9", "9"),
        ("Z_-9", "z_-9"),
        ("a" * 64, "a" * 64),
    ],
)
def test_an_agent_id_is_a_plain_word_in_lower_case(value: str, agent_id: str) -> None:
    assert check_agent_id(value) == agent_id


@proves("3.params.4")
@pytest.mark.parametrize("value", ["", " ", "-a", "_a", "a" * 65, "a b", "a:b", "a.b", "a/b", "ä", "a\x00", 7])
def test_any_other_agent_id_is_refused_with_the_field_and_the_rule(value: str) -> None:
    with pytest.raises(BadInput) as caught:
        check_agent_id(value, "target")
    assert (caught.value.field, caught.value.expected, caught.value.got) == ("target", AGENT_RULE, value)


@pytest.mark.parametrize("letter", ["\u0130", "\u0131", "\u017f", "\u212a"])
def test_letters_that_only_look_like_a_to_z_are_refused(letter: str) -> None:
    with pytest.raises(BadInput):
        check_agent_id(f"a{letter}")
    with pytest.raises(BadInput):
        parse_key(f"agent:a{letter}:main")


def test_a_refused_agent_id_is_the_field_agent_id_unless_said_otherwise() -> None:
    with pytest.raises(BadInput) as caught:
        check_agent_id("no way")
    assert str(caught.value) == f"agentId: {AGENT_RULE} (got 'no way')"


@proves("1.keys.1", "Keys are agent:<id>:main, agent:<id>:<name>, agent:<id>:subagent:<uuid> and agent:<id>:acp:<uuid>")
def test_keys_are_made_from_an_agent_id() -> None:
    assert main_key() == "agent:main:main"
    assert main_key(" Docs ") == "agent:docs:main"
    assert child_key("Docs", "u-1") == "agent:docs:subagent:u-1"
    for make in (main_key, lambda agent: child_key(agent, "u-1")):
        with pytest.raises(BadInput):
            make("a b")


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("agent:main:main", SessionKey("main", "main", "main")),
        ("  AGENT:Docs:MAIN\n", SessionKey("docs", "main", "main")),
        ("agent:docs:subagent:u-1", SessionKey("docs", "subagent", "u-1")),
        ("Agent:docs:SubAgent:U-1", SessionKey("docs", "subagent", "U-1")),
        ("agent:docs:acp:u-1", SessionKey("docs", "acp", "u-1")),
        ("agent:docs:ACP:u:1", SessionKey("docs", "acp", "u:1")),
        ("agent:docs:subagent", SessionKey("docs", "named", "subagent")),
        ("agent:docs:acp:", SessionKey("docs", "named", "acp:")),
        ("agent:docs:main:2", SessionKey("docs", "named", "main:2")),
        ("agent:docs:Telegram:+49@x.y_z", SessionKey("docs", "named", "Telegram:+49@x.y_z")),
        ("agent:docs:" + "n" * 128, SessionKey("docs", "named", "n" * 128)),
        ("main", SessionKey("main", "main", "main")),
        (" MAIN ", SessionKey("main", "main", "main")),
    ],
)
def test_a_key_is_read_with_space_and_case_of_its_fixed_parts_forgiven(text: str, key: SessionKey) -> None:
    assert parse_key(text) == key


def test_main_alone_is_the_main_session_of_the_agent_that_asks() -> None:
    assert parse_key("main", "docs") == SessionKey("docs", "main", "main")
    assert parse_key("agent:other:main", "docs") == SessionKey("other", "main", "main")


@proves("1.keys.3", "What is no key is refused with an example of one")
@pytest.mark.parametrize(
    "text",
    [
        "",
        "agent",
        "agent:",
        "agent:docs",
        "agent:docs:",
        "agent::main",
        "agent:-x:main",
        "agents:docs:main",
        "docs:main",
        "mains",
        "agent:docs:-x",
        "agent:docs:a b",
        "agent:docs:a\nb",
        "agent:docs:a\x00",
        "agent:docs:" + "n" * 129,
        7,
    ],
)
def test_what_is_no_key_is_refused_with_an_example_of_one(text: str) -> None:
    with pytest.raises(BadInput) as caught:
        parse_key(text)
    assert (caught.value.field, caught.value.expected, caught.value.got) == ("sessionKey", KEY_RULE, text)


@pytest.mark.parametrize(
    ("key", "agent_id", "child"),
    [
        ("agent:docs:main", "docs", False),
        ("agent:docs:notes", "docs", False),
        ("agent:docs:subagent:u-1", "docs", True),
        ("agent:Other:acp:u-1", "other", True),
    ],
)
def test_a_key_tells_its_agent_and_whether_it_was_spawned(key: str, agent_id: str, child: bool) -> None:
    assert (agent_of(key), is_child_key(key)) == (agent_id, child)


@proves("1.keys.1")
@pytest.mark.parametrize(
    ("key", "text"),
    [
        (SessionKey("docs", "main", "main"), "agent:docs:main"),
        (SessionKey("docs", "named", "notes"), "agent:docs:notes"),
        (SessionKey("docs", "subagent", "u-1"), "agent:docs:subagent:u-1"),
        (SessionKey("docs", "acp", "u-1"), "agent:docs:acp:u-1"),
    ],
)
def test_a_key_taken_apart_is_put_together_again(key: SessionKey, text: str) -> None:
    assert str(key) == text
    assert parse_key(text) == key


@given(
    agent=st.from_regex(r"\A[a-z0-9][a-z0-9_-]{0,9}\Z"), name=st.from_regex(r"\A[A-Za-z0-9][A-Za-z0-9._:@+-]{0,9}\Z")
)
def test_every_key_that_is_read_reads_the_same_again(agent: str, name: str) -> None:
    key = parse_key(f"agent:{agent}:{name}")
    assert parse_key(str(key)) == key


@pytest.mark.parametrize(
    ("key", "kind"),
    [
        ("main", "main"),
        ("agent:a:main", "main"),
        ("agent:a:notes", "named"),
        ("agent:a:subagent:u1", "subagent"),
        ("agent:a:acp:u1", "acp"),
        ("agent:a:chat:group:42", "group"),
        ("agent:a:chat:channel:42", "group"),
        ("agent:a:cron:daily:run:1", "cron"),
        ("agent:a:hook:mail", "hook"),
        ("agent:a:node:phone", "node"),
        ("agent:a:cron", "named"),
        ("agent:a:group", "named"),
    ],
)
def test_a_key_says_what_kind_of_session_it_names(key: str, kind: str) -> None:
    assert list_kind(key) == kind


@pytest.mark.parametrize(
    ("unique", "short"),
    [
        ("550e8400-e29b-41d4-a716-446655440000", "550e8400"),
        ("01a1dea1-2d73-7be4-a1ce-f436f661c190", "f661c190"),
        ("r2", "r2"),
    ],
)
def test_a_short_form_tells_a_uuid_from_others_of_the_same_minute(unique: str, short: str) -> None:
    assert short_id(unique) == short
    assert all(is_called(unique, word) for word in (short, short[:4].upper(), unique, unique[:12]))
    assert not is_called(unique, "x" + short)


# ---- projects --------------------------------------------------------------------------------------------------------


@proves("1.keys.4", "A project's conversation is `agent:<id>:<folder>-<4 hex>`: the folder's name, its path's digest")
@pytest.mark.parametrize(
    ("folder", "name"),
    [
        ("/src/docs", "docs-5cd1"),
        ("/old/docs", "docs-8b78"),
        ("/src/My Site (2)", "my-site-2-1aac"),
        ("/src/Café", "cafe-a4b7"),
        ("/src/-x-", "x-9281"),
        ("/src/文書", "folder-630e"),
        ("/src/___", "folder-b8f8"),
        ("/src/main", "main-e158"),
        ("/src/" + "long " * 20, "long-long-long-long-long-long-lo-e13b"),
        ("/src/" + "a" * 31 + " b", "a" * 31 + "-7a4b"),
    ],
)
def test_a_folder_names_its_conversation(folder: str, name: str) -> None:
    key = project_key(folder)
    assert key == f"agent:main:{name}"
    assert str(parse_key(key)) == key
    assert project_key(folder, "Critic") == f"agent:critic:{name}"


@given(st.text(st.characters(codec="utf-8")))
def test_every_folder_has_a_key(name: str) -> None:
    assert parse_key(project_key(f"/{name}")).kind == "named"


@pytest.mark.parametrize(
    ("key", "folder", "is_main"),
    [
        ("agent:main:main", "", True),
        ("agent:critic:main", "/src/docs", True),
        (project_key("/src/docs"), "/src/docs", True),
        (project_key("/src/docs", "critic"), "/src/docs", True),
        (project_key("/src/docs"), "/old/docs", False),
        (project_key("/src/docs"), "", False),
        ("agent:main:trip", "/src/docs", False),
    ],
)
def test_an_agent_has_a_main_conversation_and_one_in_each_project(key: str, folder: str, is_main: bool) -> None:
    assert is_main_key(key, folder) is is_main


def test_a_main_conversation_is_listed_as_one_whatever_its_key() -> None:
    assert list_kind(project_key("/src/docs"), is_main=True) == "main"
    assert list_kind(project_key("/src/docs")) == "named"


@pytest.mark.parametrize(
    ("key", "name"), [("agent:main:main", "main"), ("agent:main:trip", "trip"), ("agent:critic:main", "critic:main")]
)
def test_a_conversation_is_called_by_its_name(key: str, name: str) -> None:
    assert conversation_name(key) == name


def test_the_folder_of_attached_files_is_plain_and_no_two_sessions_share_one() -> None:
    keys = [
        "agent:main:main",
        "agent:critic:main",
        "agent:main:Chat",
        "agent:main:chat",
        "agent:main:a:b",
        "agent:main:a-b",
    ]
    found = [attached_folder(key) for key in keys]
    assert len({name.lower() for name in found}) == len(keys)
    assert all(re.fullmatch("[a-z0-9-]{13,45}", name) for name in found)
    assert found[0].startswith("main-")
