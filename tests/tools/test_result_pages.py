"""A result too long to be told whole, read as a model reads it: by the call that the announce names, page after page.

The whole program is real: engine, profiles, tools. The model is scripted, and knows only the texts that it is given: it
takes the call from the announce, makes it, and repeats it with each `next`.
"""

import asyncio
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

import fledge
from fledge.core.freeze import FROZEN_BYTES
from fledge.models.base import Call, ModelMessage, Request, ToolMessage, UserMessage
from fledge.models.scripted import Answer, last_text, use
from fledge.store.base import Tx
from fledge.testing import ScriptedModel
from tests.api.scene import Place
from tests.statements import proves

HINT = re.compile(r"sessions_history (\{[^}]*\})")
PIECES = 2857
SECRET = "sk-proj-abcdef123456"


def numbered(filling: str, pieces: int = PIECES) -> str:
    """A text of numbered pieces, each with the same filling."""
    return "".join(f"[{number:04d}{filling}]" for number in range(pieces))


def said_to(request: Request) -> list[str]:
    return [message.text for message in request.messages if isinstance(message, UserMessage)]


def pages(messages: tuple[ModelMessage, ...]) -> list[dict[str, Any]]:
    """What `sessions_history` answered so far, oldest first."""
    answers = [said for said in messages if isinstance(said, ToolMessage) and said.name == "sessions_history"]
    return [msgspec.json.decode(answer.text) for answer in answers]


def read_all(request: Request) -> Answer:
    """Make the call that the last hint names, again with each `next`, then say what came of it."""
    read = pages(request.messages)
    hint = next((found for text in reversed(said_to(request)) if (found := HINT.search(text))), None)
    assert hint is not None, last_text(request)
    if not read:
        return Call("", "sessions_history", hint[1])
    assert read[-1]["status"] == "ok", read[-1]
    if "next" in read[-1]:
        return use("sessions_history", **{**msgspec.json.decode(hint[1]), "offset": read[-1]["next"]})
    return f"I read {len(read)} pages"


class Family:
    """Scripts for a main conversation, its children, and theirs; the texts that the reader was given."""

    def __init__(self, result: str, reader: str, **spawn: Any) -> None:
        self.result, self.reader, self.spawn = result, reader, spawn
        self.requests: list[Request] = []

    def __call__(self, request: Request) -> Answer:
        role = self._role(request)
        if role == "leaf":
            return self.result
        told = [text for text in said_to(request) if "[Subagent]" in text and "completed" in text]
        if not any(message.text for message in request.messages if isinstance(message, ToolMessage)):
            task = "orchestrate" if role == "main" and self.reader == "orchestrator" else "write it"
            return use("sessions_spawn", task=task, **self.spawn)
        if not told:
            return use("sessions_yield") if role == "orchestrator" else "started"
        if role != self.reader:
            return "heard"
        self.requests.append(request)
        return read_all(request)

    def _role(self, request: Request) -> str:
        if "# Subagent Context" not in request.system:
            return "main"
        return "orchestrator" if "## Subagents of your own" in request.system else "leaf"

    @property
    def read(self) -> list[dict[str, Any]]:
        return pages(self.requests[-1].messages)

    @property
    def told(self) -> str:
        return next(text for text in said_to(self.requests[-1]) if HINT.search(text))


def _is_deleted(tx: Tx, key: str) -> bool:
    session = tx.sessions.get(key)
    return session is not None and session.deleted


def play(tmp_path: Path, family: Family, **config: Any) -> set[str]:
    """Say one thing to main, let everything come to rest, and answer which sessions are deleted by then."""
    depth = 2 if family.reader == "orchestrator" else 1
    config["agents"] = {"defaults": {"subagents": {"maxSpawnDepth": depth}}}

    async def body(fl: fledge.Fledge) -> set[str]:
        chat = fl.session("main")
        await chat.send("go")
        assert await chat.settled(timeout=600)
        await asyncio.sleep(1)
        keys = {page["sessionKey"] for page in family.read}
        return await fl.engine.store.read(lambda tx: {key for key in keys if _is_deleted(tx, key)})

    return Place(tmp_path).act(body, ScriptedModel(family), config=config)


RESULTS = {
    "letters": numbered("x" * 29),
    "of two and three bytes": numbered("é€" * 5),
    "emoji and quotation marks": numbered('😀"\\' * 4),
    "control characters": numbered("\x01" * 20),
}


@proves("4.tools.36", "`sessions_history` with `result` answers {text, offset, next?, total}, page after page")
@proves("2.announce.24", "A result that is not told whole comes with the exact call that reads it")
@pytest.mark.parametrize("reader", ["main", "orchestrator"])
@pytest.mark.parametrize("result", RESULTS.values(), ids=RESULTS)
def test_a_long_result_is_read_completely_by_the_call_that_the_announce_names(
    tmp_path: Path, result: str, reader: str
) -> None:
    assert len(result) > 4000
    assert len(result.encode()) <= FROZEN_BYTES
    family = Family(result, reader)
    play(tmp_path, family)
    assert "".join(page["text"] for page in family.read) == result
    assert [page["offset"] for page in family.read] == [0, *(page["next"] for page in family.read[:-1])]
    assert {page["total"] for page in family.read} == {len(result)}
    assert all(len(msgspec.json.encode(page)) <= 80 * 1024 for page in family.read)


@proves("2.frozen.17")
@pytest.mark.parametrize("reader", ["main", "orchestrator"])
def test_the_result_of_a_deleted_child_is_read_completely_too(tmp_path: Path, reader: str) -> None:
    family = Family(numbered("x" * 29), reader, cleanup="delete")
    deleted = play(tmp_path, family)
    assert "".join(page["text"] for page in family.read) == family.result
    assert deleted == {page["sessionKey"] for page in family.read}


@proves("4.tools.37", "Secrets in a result are redacted before it is cut into pages")
def test_no_page_shows_a_secret_or_a_part_of_one(tmp_path: Path) -> None:
    # Secrets everywhere, so that every page would end in one.
    result = numbered(f" token={SECRET} ")[:FROZEN_BYTES]
    family = Family(result, "main")
    play(tmp_path, family)
    whole = "".join(page["text"] for page in family.read)
    assert len(family.read) > 3
    assert whole == result.replace(SECRET, "[redacted]")
    assert {page["total"] for page in family.read} == {len(result)}


@proves(
    "2.announce.25", "With `full` a result that no turn has room for is told from its beginning, and where to read on"
)
@pytest.mark.parametrize("reader", ["main", "orchestrator"])
@pytest.mark.parametrize("name", ["letters", "of two and three bytes"])
def test_in_full_style_a_result_beyond_a_turn_is_told_from_its_beginning_and_read_on_from_there(
    tmp_path: Path, name: str, reader: str
) -> None:
    result = (RESULTS[name] * 2).encode()[:FROZEN_BYTES].decode("utf-8", "ignore")
    family = Family(result, reader)
    play(tmp_path, family, announce={"style": "full"})
    hint = HINT.search(family.told)
    assert hint is not None
    offset = msgspec.json.decode(hint[1])["offset"]
    assert 60_000 < len(result[:offset].encode()) < 64 * 1024
    assert "no room" not in family.told
    assert result[:offset] in family.told
    assert "".join(page["text"] for page in family.read) == result[offset:]


@proves(
    "4.tools.35", "Whoever may spawn is given `sessions_history`, and may read results from below at any visibility"
)
@pytest.mark.parametrize("reader", ["main", "orchestrator"])
@pytest.mark.parametrize(
    "tools",
    [
        {"allow": ["sessions_spawn", "sessions_yield"]},
        {"subagents": {"tools": {"allow": ["sessions_spawn", "sessions_yield"]}}},
        {"sessions": {"visibility": "self"}},
    ],
)
def test_a_requester_can_make_the_call_that_it_is_pointed_to(
    tmp_path: Path, tools: dict[str, Any], reader: str
) -> None:
    family = Family(numbered("x"), reader)
    play(tmp_path, family, tools=tools)
    assert "".join(page["text"] for page in family.read) == family.result
