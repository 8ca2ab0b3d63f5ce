"""The change of a file that a call would make: shown to the person who is asked, as the file is; carried out only as it
was shown; and the content that it replaced, kept with the transcript."""

import asyncio
import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import fledge
from fledge.api import entries
from fledge.core.entries import ReplyEntry
from fledge.core.file_change import Replaced, change_lines
from fledge.core.transcript import Resulted, from_body
from fledge.models.base import Request, ToolMessage
from fledge.models.scripted import Answer, ScriptedModel, ScriptedReply, echo, use
from tests.api.scene import Place
from tests.statements import proves

ASKS: dict[str, Any] = {"tools": {"write": {"approval": "ask"}, "edit": {"approval": "ask"}}}
TEXT = "".join(f"line {n}\n" for n in range(12))
SECRET = "token = ghp_" + "a1" * 18
LARGE = 1 << 20


@pytest.fixture
def place(tmp_path: Path) -> Place:
    (tmp_path / "state").mkdir()
    return Place(tmp_path / "state")


@pytest.fixture
def work(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


def once(tool: str, **arguments: object) -> ScriptedModel:
    """A model that makes one call, then echoes its result."""

    def script(request: Request) -> Answer:
        return echo(request) if isinstance(request.messages[-1], ToolMessage) else use(tool, **arguments)

    return ScriptedModel(script)


async def question(fl: fledge.Fledge) -> fledge.Question:
    """Has the conversation make its call, and waits for the question."""
    asyncio.get_running_loop().create_task(fl.session("main").send("go"))
    await fl.until(lambda tx: bool(tx.approvals.open()) or None)
    (asked,) = await fl.approvals()
    return asked


async def answered(fl: fledge.Fledge, asked: fledge.Question) -> str:
    """The result of the call, once it is allowed."""
    await fl.approve(asked.id, digest=asked.digest)
    found = await fl.until(lambda tx: next(iter(_results(tx, "agent:main:main")), None))
    assert found is not None
    return found.text


def _results(tx: Any, key: str) -> list[Resulted]:
    bodies = [from_body(entry.body) for entry in tx.transcripts.entries(key, limit=100)]
    return [body for body in bodies if isinstance(body, Resulted)]


def written(path: str, content: str) -> ScriptedModel:
    return once("write", path=path, content=content)


CASES: dict[str, tuple[bytes | None, ScriptedModel, list[str]]] = {
    "a file that is replaced": (
        TEXT.encode(),
        written("a.txt", TEXT.replace("line 10", "ten")),
        ["…7 unchanged lines", " line 7", " line 8", " line 9", "-line 10", "+ten", " line 11"],
    ),
    "an edit": (
        TEXT.encode(),
        once("edit", path="a.txt", old="line 10", new="ten"),
        ["…7 unchanged lines", " line 7", " line 8", " line 9", "-line 10", "+ten", " line 11"],
    ),
    "an edit of several places": (
        b"one x\ntwo\nthree x\n",
        once("edit", path="a.txt", old="x", new="y", replaceAll=True),
        ["-one x", "+one y", " two", "-three x", "+three y"],
    ),
    "a new file": (None, written("a.txt", "new\n"), ["(a new file)"]),
    "an empty file": (b"", written("a.txt", "new\n"), ["(replaces an empty file)", "+new"]),
    "a binary file": (
        b"\x00\x01",
        written("a.txt", "new\n"),
        ["(replaces a file of 2 bytes that is not shown (binary))"],
    ),
    "a large file": (
        b"a" * (2 * LARGE),
        written("a.txt", "new\n"),
        ["(replaces a file of 2.1 MB that is not shown (too large to compare))"],
    ),
    "a very large file": (
        b"a" * (11 * LARGE),
        written("a.txt", "new\n"),
        ["(replaces a file of 11.5 MB that is not shown (too large to compare))"],
    ),
    "a file with a secret": (
        f"{SECRET}\nold\n".encode(),
        written("a.txt", f"{SECRET}\nnew\n"),
        ["(secrets of the file are not shown)", " token = [redacted]", "-old", "+new"],
    ),
}


@proves("8.changes.1", "A question about `write` or `edit` shows what the call would change in the file as it is")
@proves("8.changes.3", "A replaced content of at most 1 MiB of text is kept beside the call's result, without secrets")
@pytest.mark.parametrize("name", CASES)
def test_a_question_shows_the_change_and_the_replaced_content_is_kept_without_secrets(
    place: Place, work: Path, name: str
) -> None:
    before, model, lines = CASES[name]
    if before is not None:
        (work / "a.txt").write_bytes(before)

    async def body(fl: fledge.Fledge) -> tuple[list[str], Replaced | None]:
        asked = await question(fl)
        assert asked.change is not None
        page = await fl.engine.store.read(lambda tx: entries.page(tx, "agent:main:main", 50))
        (call,) = next(entry.calls for entry in page.entries if isinstance(entry, ReplyEntry))
        assert call.change == asked.change
        assert "placed" in await answered(fl, asked) or before is None
        (result,) = await fl.engine.store.read(lambda tx: _results(tx, "agent:main:main"))
        assert [one.change for one in await fl.approvals(decided=True)] == [None]
        return change_lines(asked.change), result.replaced

    shown, replaced = place.act(body, model, config=ASKS, workspace=work)
    assert shown == lines
    assert replaced is not None
    is_kept = before is not None and len(before) <= LARGE and b"\x00" not in before
    kept = None if before is None else before.replace(SECRET.removeprefix("token = ").encode(), b"[redacted]")
    assert replaced == Replaced(
        path="a.txt",
        is_new=before is None,
        size=len(before or b""),
        sha256="" if before is None or len(before) > 10 * LARGE else hashlib.sha256(before).hexdigest(),
        kept=hashlib.sha256(kept).hexdigest() if is_kept and kept is not None else "",
    )
    assert {path.read_bytes() for path in place.folder.glob("images/*")} == ({kept} if is_kept else set())


@proves("8.changes.3")
def test_the_replaced_content_goes_with_the_transcript(place: Place, work: Path) -> None:
    (work / "a.txt").write_text("old\n")

    async def body(fl: fledge.Fledge) -> int:
        await answered(fl, await question(fl))
        kept = len(list(place.folder.glob("images/*")))
        await fl.session("main").delete()
        await asyncio.sleep(600)
        return kept

    assert place.act(body, written("a.txt", "new\n"), config=ASKS, workspace=work) == 1
    assert list(place.folder.glob("images/*")) == []


def _gone(file: Path) -> None:
    file.unlink()


def _changed(file: Path) -> None:
    file.write_text("something else\n")


def _became_large(file: Path) -> None:
    file.write_bytes(b"a" * (2 * LARGE))


@proves("8.changes.2", "A call is refused if it would change the file in another way than the person saw")
@pytest.mark.parametrize("happens", [_gone, _changed, _became_large])
@pytest.mark.parametrize(
    "model",
    [written("a.txt", "new\n"), once("edit", path="a.txt", old="old", new="new")],
    ids=["write", "edit"],
)
def test_a_file_that_changed_since_the_question_is_not_replaced(
    place: Place, work: Path, model: ScriptedModel, happens: Callable[[Path], None]
) -> None:
    file = work / "a.txt"
    file.write_text("old\n")

    async def body(fl: fledge.Fledge) -> str:
        asked = await question(fl)
        happens(file)
        return await answered(fl, asked)

    before = place.act(body, model, config=ASKS, workspace=work)
    assert "since a person was asked" in before or "must stand in the file" in before or "no such file" in before
    assert not file.exists() or "new" not in file.read_text()


def test_a_file_that_came_since_the_question_is_not_replaced(place: Place, work: Path) -> None:
    async def body(fl: fledge.Fledge) -> str:
        asked = await question(fl)
        (work / "a.txt").write_text("mine\n")
        return await answered(fl, asked)

    assert "since a person was asked" in place.act(body, written("a.txt", "new\n"), config=ASKS, workspace=work)
    assert (work / "a.txt").read_text() == "mine\n"


def test_an_edit_is_carried_out_if_the_file_changed_elsewhere(place: Place, work: Path) -> None:
    (work / "a.txt").write_text(TEXT)

    async def body(fl: fledge.Fledge) -> str:
        asked = await question(fl)
        (work / "a.txt").write_text(f"before\n{TEXT}")
        return await answered(fl, asked)

    model = once("edit", path="a.txt", old="line 10", new="ten")
    assert place.act(body, model, config=ASKS, workspace=work) == "replaced 1 place in a.txt"
    assert (work / "a.txt").read_text() == f"before\n{TEXT}".replace("line 10", "ten")


def _a_link_out(work: Path, secret: Path) -> str:
    (work / "a.txt").symlink_to(secret)
    return "a.txt"


def _a_folder_that_leads_out(work: Path, secret: Path) -> str:
    (work / "out").symlink_to(secret.parent)
    return f"out/{secret.name}"


def _a_path_out(work: Path, secret: Path) -> str:
    return f"../{secret.parent.name}/{secret.name}"


def _the_state_folder(work: Path, secret: Path) -> str:
    (work / "state").symlink_to(secret.parent.parent / "state")
    return "state/fledge.db"


def _a_pipe(work: Path, secret: Path) -> str:
    os.mkfifo(work / "pipe")
    return "pipe"


@pytest.mark.parametrize("leads", [_a_link_out, _a_folder_that_leads_out, _a_path_out, _the_state_folder, _a_pipe])
def test_a_file_that_no_tool_may_see_is_not_shown(place: Place, work: Path, leads: Callable[[Path, Path], str]) -> None:
    secret = work.parent / "elsewhere" / "secret.txt"
    secret.parent.mkdir()
    secret.write_text("do not read\n")

    async def body(fl: fledge.Fledge) -> tuple[list[str], str]:
        asked = await question(fl)
        assert asked.change is not None
        return change_lines(asked.change), await answered(fl, asked)

    lines, result = place.act(body, written(leads(work, secret), "new\n"), config=ASKS, workspace=work)
    assert len(lines) == 1
    assert lines[0].startswith("(it would be refused now: path")
    assert "do not read" not in result
    assert secret.read_text() == "do not read\n"
    assert list(place.folder.glob("images/*")) == []


@proves("8.changes.2")
@pytest.mark.parametrize("changes", [False, True])
def test_the_change_that_was_shown_counts_after_a_restart(place: Place, work: Path, changes: bool) -> None:
    (work / "a.txt").write_text("old\n")
    model = written("a.txt", "new\n")
    place.act(question, model, config=ASKS, workspace=work)
    if changes:
        (work / "a.txt").write_text("changed\n")

    async def body(fl: fledge.Fledge) -> str:
        (asked,) = await fl.approvals()
        assert asked.change is not None
        assert change_lines(asked.change) == ["-old", "+new"]
        return await answered(fl, asked)

    result = place.act(body, model, config=ASKS, workspace=work)
    assert ("since a person was asked" in result) == changes
    assert (work / "a.txt").read_text() == ("changed\n" if changes else "new\n")


def test_of_two_edits_of_one_file_each_is_carried_out_as_it_was_shown(place: Place, work: Path) -> None:
    (work / "a.txt").write_text(TEXT)
    edits = [use("edit", path="a.txt", old=f"line {n}\n", new=f"{n}!\n") for n in (1, 10)]

    def script(request: Request) -> Answer:
        is_over = isinstance(request.messages[-1], ToolMessage)
        return "done" if is_over else ScriptedReply("", tuple(edits))

    async def body(fl: fledge.Fledge) -> list[str]:
        asyncio.get_running_loop().create_task(fl.session("main").send("go"))
        await fl.until(lambda tx: len(tx.approvals.open()) == 2 or None)
        for asked in await fl.approvals():
            await fl.approve(asked.id, digest=asked.digest)
        found = await fl.until(lambda tx: len(_results(tx, "agent:main:main")) == 2 or None)
        assert found
        return [result.text for result in await fl.engine.store.read(lambda tx: _results(tx, "agent:main:main"))]

    results = place.act(body, ScriptedModel(script), config=ASKS, workspace=work)
    assert results == ["replaced 1 place in a.txt"] * 2
    assert (work / "a.txt").read_text() == TEXT.replace("line 1\n", "1!\n").replace("line 10\n", "10!\n")
