"""Files of children through the whole engine: handed in, handed over, and gone when they should be.

On a real disk, with the real store, in virtual time.
"""

import asyncio
import os
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

import fledge
from fledge.core.attachments import Attachment, SpawnFile
from fledge.core.keys import main_key
from fledge.errors import BadInput, Refused
from fledge.models.base import Request
from fledge.models.scripted import Answer, ScriptedModel, last_text, use
from fledge.orchestrator import control, spawn
from fledge.orchestrator.engine import Changes
from fledge.orchestrator.spawn_params import Caller, SpawnParams
from fledge.store.base import Tx
from fledge.testing import START, VirtualClock, run_virtual
from tests.runtime.desk import said
from tests.statements import proves
from tests.workspaces.repository import commit, lead_out, make_repository, run_git

PATIENCE_S = 60.0
CONFIG: dict[str, Any] = {
    "tools": {"sessions_spawn": {"attachments": {"enabled": True}}},
    "agents": {"defaults": {"sandbox": {"mode": "off"}}},
}

Script = Callable[[Request], Answer | Awaitable[Answer]]


def text_of(path: str) -> str:
    return Path(path).read_text()


def step(request: Request, *answers: Answer) -> Answer:
    """The first answer to a transcript without replies, and so on."""
    return answers[said(request)]


def is_child(request: Request) -> bool:
    return "# Subagent Context" in request.system


class Bench:
    """One state folder and one workspace, opened act after act."""

    def __init__(self, folder: Path) -> None:
        self.state, self.work = folder / "state", folder / "work"
        self.requests: list[Request] = []
        self.now = START

    def act(
        self, body: Callable[[fledge.Fledge], Awaitable[None]], script: Script, config: dict[str, Any] | None = None
    ) -> None:
        async def acting() -> None:
            model = ScriptedModel(script)
            self.requests = model.requests
            clock = VirtualClock(self.now)
            opened = fledge.open(self.state, model=model, workspace=self.work, config=config or CONFIG, clock=clock)
            try:
                async with opened as fl, asyncio.timeout(PATIENCE_S):
                    await body(fl)
            finally:
                self.now = clock.now()

        self.work.mkdir(exist_ok=True)
        run_virtual(acting())

    def leaves(self, kind: str) -> list[str]:
        return sorted(os.listdir(self.state / kind)) if (self.state / kind).exists() else []


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


async def until(fl: fledge.Fledge, holds: Callable[[Tx], bool]) -> None:
    await Changes(fl.engine).until(lambda tx: holds(tx) or None, None)


def is_removed(tx: Tx) -> bool:
    return not tx.outbox.due(float("inf"), 1)


def reported(*children: str) -> Callable[[Tx], bool]:
    """Every child of the conversation has reported, and it has answered."""
    return lambda tx: (
        tx.sessions.counts(main_key()).spawned > 0
        and all(tx.runs.load(key).phase.name == "completed" for key in tx.runs.children(main_key()))
        and tx.turns.get(main_key()) is None
        and is_removed(tx)
    )


# ---- attachments and artifacts ---------------------------------------------------------------------------------------


@proves("3.params.17", "`attachments` are taken")
@proves("3.answer.2", "accepted lists the attachments it took")
@proves("3.files.6", "Files in a child's `artifacts/` are listed in the completion")
def test_a_child_reads_what_it_is_given_and_its_requester_reads_what_it_hands_over(bench: Bench) -> None:
    def script(request: Request) -> Answer:
        if is_child(request):
            folder = re.search(r"1 file in (\S+): \"notes.txt\"", request.system)
            assert folder is not None
            return step(
                request,
                use("read", path=f"{folder[1]}/notes.txt"),
                use("list", path=folder[1]),
                use("write", path=f"{folder[1]}/notes.txt", content="overwritten"),
                use("write", path="artifacts/report.md", content="It is blue."),
                "I read it.\nSUMMARY: read",
            )
        told = re.search(r"Artifacts: report.md \(11 bytes, sha256 [0-9a-f]{16}\) in (\S+)", last_text(request))
        if told is not None:
            return use("read", path=f"{told[1]}/report.md")
        attached = [{"name": "notes.txt", "content": "the sky is blue"}]
        first = use("sessions_spawn", task="read the notes", workspace="dir", attachments=attached)
        return step(request, first, "It is under way.", "unused", f"It says: {last_text(request)}")

    async def body(fl: fledge.Fledge) -> None:
        await fl.session("main").send("go")
        await until(fl, reported())
        (key,) = await fl.engine.store.read(lambda tx: tx.runs.children(main_key()))
        name = key.rpartition(":")[2]
        results = await fl.engine.store.read(
            lambda tx: [e.body for e in tx.transcripts.entries(key) if e.kind == "tool"]
        )
        texts = [msgspec.json.decode(result)["text"] for result in results]
        assert "the sky is blue" in texts[0]
        assert [line.split()[0] for line in texts[1].splitlines()] == [".manifest.json", "notes.txt"]
        assert "must stay inside the workspace" in texts[2]
        # Kept, but not retained: attachments are gone, the folder with what it made is not.
        assert bench.leaves("attachments") == []
        assert bench.leaves("work") == [name]
        answer = await fl.engine.store.read(
            lambda tx: [e.body for e in tx.transcripts.entries(main_key()) if e.kind == "assistant"]
        )
        assert "It is blue." in answer[-1]
        again = [request for request in bench.requests if not is_child(request)][1]
        assert "the sky is blue" not in repr(again.messages)
        spawned = msgspec.json.decode(again.messages[-1].text)
        assert spawned["attachments"] == {
            "count": 1,
            "totalBytes": 15,
            "files": [{"name": "notes.txt", "bytes": 15, "sha256": spawned["attachments"]["files"][0]["sha256"]}],
            "relDir": f"attachments/{name}",
        }

    bench.act(body, script)


def test_files_in_a_shared_workspace_are_handed_over_from_a_folder_of_its_own(bench: Bench) -> None:
    def script(request: Request) -> Answer:
        folder = re.search(r"put them into `(artifacts/[0-9a-f]{8})/`", request.system)
        assert folder is not None
        return step(request, use("write", path=f"{folder[1]}/a.txt", content="x"), "done")

    async def body(fl: fledge.Fledge) -> None:
        result = await (await fl.spawn("write"))
        (path,) = result.artifacts
        assert text_of(path) == "x"
        assert Path(path).parent.parent == bench.work / "artifacts"

    bench.act(body, script)


def test_what_was_made_before_a_timeout_is_handed_over_too(bench: Bench) -> None:
    async def slow(request: Request) -> Answer:
        if said(request) == 0:
            return use("write", path="artifacts/half.md", content="half")
        await asyncio.Event().wait()
        raise AssertionError

    async def body(fl: fledge.Fledge) -> None:
        result = await (await fl.spawn("write", workspace="dir", timeout=1))
        assert result.status == "timeout"
        assert [text_of(path) for path in result.artifacts] == ["half"]

    bench.act(body, slow)


@proves("3.files.3")
@pytest.mark.parametrize(
    ("attachments", "config", "words"),
    [
        ([Attachment("a", "x")], {}, "attachments are switched off: tools.sessions_spawn.attachments.enabled"),
        ([Attachment("../a", "x")], CONFIG, "attachments_invalid_name: '../a' must be a plain file name"),
        ([Attachment("a", "!", "base64")], CONFIG, "attachments_invalid_base64_or_too_large: 'a' must be base64"),
    ],
)
def test_attachments_that_are_refused_leave_nothing(
    bench: Bench, attachments: list[Attachment], config: dict[str, Any], words: str
) -> None:
    async def body(fl: fledge.Fledge) -> None:
        with pytest.raises(Refused) as refused:
            await fl.spawn("read", attachments=attachments)
        assert refused.value.reason.startswith(words)
        assert await fl.runs() == []

    bench.act(body, lambda request: "never", {**config, "agents": CONFIG["agents"]})
    assert bench.leaves("attachments") == []


@proves("6.cleanup.2", "`delete`: after delivery attachments go")
@pytest.mark.parametrize(
    ("cleanup", "retain", "left"), [("keep", False, 0), ("keep", True, 1), ("delete", False, 0), ("delete", True, 0)]
)
def test_attachments_go_after_the_delivery_unless_a_kept_session_retains_them(
    bench: Bench, cleanup: Any, retain: bool, left: int
) -> None:
    settings = {"enabled": True, "retainOnSessionKeep": retain}
    config = {"tools": {"sessions_spawn": {"attachments": settings}}}

    async def body(fl: fledge.Fledge) -> None:
        run = await fl.spawn("read", attachments=[Attachment("a", "x")], cleanup=cleanup)
        await run
        await until(fl, lambda tx: tx.runs.load(run.session_key).phase.name == "completed")
        assert len(bench.leaves("attachments")) == left
        await fl.engine.commit(lambda c: control.remove(c, run.session_key))
        await until(fl, is_removed)
        assert bench.leaves("attachments") == []

    bench.act(body, lambda request: "read", config)


# ---- workspaces ------------------------------------------------------------------------------------------------------


@proves("3.params.14")
def test_a_child_starts_where_it_is_told_to_and_relative_paths_begin_there(bench: Bench) -> None:
    (bench.work / "sub" / "deep").mkdir(parents=True)
    (bench.work / "sub" / "a.txt").write_text("inside")
    (bench.work / "top.txt").write_text("top")

    def script(request: Request) -> Answer:
        return step(
            request,
            use("read", path="a.txt"),
            use("write", path="new.txt", content="x"),
            use("read", path=f"{bench.work}/top.txt"),
            use("grep", pattern="inside"),
            use("exec", command="pwd"),
            "done",
        )

    async def body(fl: fledge.Fledge) -> None:
        run = await fl.spawn("look", cwd="sub")
        await run
        entries = await fl.engine.store.read(
            lambda tx: [e.body for e in tx.transcripts.entries(run.session_key) if e.kind == "tool"]
        )
        texts = [msgspec.json.decode(entry)["text"] for entry in entries]
        assert ["inside" in texts[0], "top" in texts[2], "inside" in texts[3]] == [True] * 3
        assert texts[4].splitlines()[0] == str(bench.work / "sub")
        assert (bench.work / "sub" / "new.txt").read_text() == "x"

    config = {**CONFIG, "tools": {"exec": {"approval": "never"}}}
    bench.act(body, script, config)


@proves("3.params.14")
@pytest.mark.parametrize("cwd", ["nowhere", "a.txt", "link"])
def test_a_cwd_that_is_no_folder_inside_is_refused_and_leaves_nothing(bench: Bench, cwd: str, tmp_path: Path) -> None:
    bench.work.mkdir()
    (bench.work / "a.txt").write_text("x")
    (bench.work / "link").symlink_to(tmp_path)

    async def body(fl: fledge.Fledge) -> None:
        with pytest.raises(BadInput, match=r"^cwd: must be a folder inside the workspace"):
            await fl.spawn("look", cwd=cwd)
        assert await fl.runs() == []

    bench.act(body, lambda request: "never")


@proves("3.params.13")
def test_a_child_in_a_worktree_changes_nothing_elsewhere_and_its_work_is_told_and_kept(bench: Bench) -> None:
    make_repository(bench.work)

    def script(request: Request) -> Answer:
        if is_child(request):
            assert "on branch fledge/" in request.system
            return step(request, use("write", path="readme.md", content="better"), "done")
        asked = use("sessions_spawn", task="improve it", workspace="worktree")
        return step(request, asked, "started", "It is done.")

    async def body(fl: fledge.Fledge) -> None:
        await fl.session("main").send("go")
        await until(fl, reported())
        (key,) = await fl.engine.store.read(lambda tx: tx.runs.children(main_key()))
        told = next(last_text(one) for one in reversed(bench.requests) if "Worktree:" in last_text(one))
        place = bench.state / "worktrees" / key.rpartition(":")[2]
        assert f"Worktree: {place}, branch fledge/" in told
        assert "0 commits, 1 uncommitted: readme.md; it stays until they are merged or removed" in told
        assert (bench.work / "readme.md").read_text() == "hello\n"
        await fl.engine.commit(lambda c: control.remove(c, key))
        await until(fl, is_removed)
        assert (place / "readme.md").read_text() == "better"

    bench.act(body, script)


def test_a_program_finds_the_worktree_of_its_run_in_the_result(bench: Bench) -> None:
    make_repository(bench.work)

    async def body(fl: fledge.Fledge) -> None:
        tree = (await (await fl.spawn("improve it", workspace="worktree"))).worktree
        assert tree is not None
        assert (tree.changed, tree.commits) == (("readme.md",), 0)
        assert (Path(tree.path) / "readme.md").read_text() == "better"
        assert tree.branch in run_git(bench.work, "branch", "--format=%(refname:short)").split()
        assert (await (await fl.spawn("look"))).worktree is None

    bench.act(body, lambda request: step(request, use("write", path="readme.md", content="better"), "done"))


def test_a_worktree_without_work_is_gone_once_its_run_is_off_the_lists(bench: Bench) -> None:
    make_repository(bench.work)

    async def body(fl: fledge.Fledge) -> None:
        run = await fl.spawn("look", workspace="worktree")
        await run
        await until(fl, lambda tx: tx.runs.load(run.session_key).phase.name == "completed")
        assert len(bench.leaves("worktrees")) == 3
        await fl.engine.commit(lambda c: control.remove(c, run.session_key))
        await until(fl, is_removed)
        assert bench.leaves("worktrees") == []

    bench.act(body, lambda request: "looked")
    assert run_git(bench.work, "branch", "--format=%(refname:short)").split() == ["main"]


def test_a_worktree_outside_a_repository_is_refused_and_leaves_nothing(bench: Bench) -> None:
    async def body(fl: fledge.Fledge) -> None:
        with pytest.raises(Refused, match="worktree needs a git repository"):
            await fl.spawn("look", workspace="worktree")
        assert await fl.runs() == []

    bench.act(body, lambda request: "never")
    assert bench.leaves("worktrees") == []


@proves("8.files.9")
def test_a_worktree_of_a_repository_that_leads_to_a_hidden_one_shows_nothing_of_it(
    bench: Bench, tmp_path: Path
) -> None:
    hidden = make_repository(tmp_path / "hidden")
    (hidden / "secret").write_text("the secret")
    commit(hidden, "secret")
    lead_out(make_repository(bench.work), hidden, "alternates")

    def script(request: Request) -> Answer:
        return step(request, use("sessions_spawn", task="read secret", workspace="worktree"), last_text(request))

    async def body(fl: fledge.Fledge) -> None:
        answer = await fl.session("main").send("go")
        assert msgspec.json.decode(answer.text)["status"] == "forbidden"
        assert f".git/objects/info/alternates leads to {hidden}/.git/objects" in answer.text
        assert await fl.engine.store.read(lambda tx: tx.runs.children(main_key())) == []

    bench.act(body, script)
    assert bench.leaves("worktrees") == []


# ---- restarts --------------------------------------------------------------------------------------------------------


def test_what_was_prepared_for_a_spawn_that_a_restart_cut_off_is_removed(bench: Bench) -> None:
    """The reservation and its files are there, but nobody was told of it when the process ended."""

    async def before(fl: fledge.Fledge) -> None:
        spawner = fl._parts.profiles.spawner(fl.engine)
        params = SpawnParams(task="read", workspace="dir", attachments=(SpawnFile("a", "x"),))
        request = spawner.read(params, Caller(session=fl.program))
        await fl.engine.commit(lambda c: spawn.reserve(c, request))
        await fl._parts.profiles.make(request)
        assert (len(bench.leaves("attachments")), len(bench.leaves("work"))) == (1, 1)

    async def after(fl: fledge.Fledge) -> None:
        await until(fl, is_removed)
        assert await fl.runs() == []

    bench.act(before, lambda request: "never")
    bench.act(after, lambda request: "never")
    assert (bench.leaves("attachments"), bench.leaves("work")) == ([], [])
