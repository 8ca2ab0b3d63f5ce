"""Answers to a question with more than yes or no: a rule for such commands, a no with words. Through `fledge.open`."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import fledge
from fledge.config.permissions import FOLDER
from fledge.models.base import Request
from fledge.models.scripted import Answer, ScriptedModel, last_text, use
from fledge.store.base import Tx
from fledge.testing import InlineStore
from fledge.tools.base import tool
from tests.api.scene import Place
from tests.statements import proves

SETTINGS: dict[str, Any] = {"agents": {"defaults": {"sandbox": {"mode": "off"}}}}
"""Commands run without a sandbox, so each of them asks."""


@tool
async def launch() -> str:
    """Launch."""
    return "launched"


def runs(request: Request) -> Answer:
    """Runs what it is told as a command, then says what came of it; `launch` launches, and `write` wants to write
    where commands must not."""
    told = last_text(request)
    if not told.startswith("run: "):
        return f"heard: {told}"
    match told.removeprefix("run: ").split(" ", 1):
        case ["launch"]:
            return use("launch")
        case ["write", command]:
            return use("exec", command=command, writable=[".git"])
        case _:
            return use("exec", command=told.removeprefix("run: "))


class Folder:
    """A state folder beside the user's own folder."""

    def __init__(self, base: Path) -> None:
        self.place, self.user = Place(base / "work"), base / "user"
        self.place.folder.mkdir()

    def act(self, body: Callable[[fledge.Fledge], Awaitable[None]], **options: Any) -> None:
        env = {"HOME": str(self.user), "FLEDGE_CONFIG": str(self.user), "PATH": os.environ["PATH"]}
        given = {"config": SETTINGS, "env": env, "tools": [launch]} | options
        self.place.act(body, ScriptedModel(runs), **given)

    @property
    def files(self) -> list[str]:
        """What the user's folder holds of rules."""
        return sorted(path.name for path in (self.user / FOLDER).iterdir()) if (self.user / FOLDER).exists() else []


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


async def say(fl: fledge.Fledge, command: str, session: str = "main") -> fledge.Reply:
    return await fl.session(session).send(f"run: {command}")


async def asked(fl: fledge.Fledge, command: str, session: str = "main") -> fledge.Question:
    """The question that this command asks."""
    assert (await say(fl, command, session)).status == "pending"
    (question,) = await fl.approvals()
    return question


async def allow(fl: fledge.Fledge, command: str, **ticked: bool) -> fledge.Permission:
    """The rule that is made when this command asks."""
    question = await asked(fl, command)
    rule = await fl.approve(question.id, by="me", digest=question.digest, always=True, **ticked)
    await fl.session("main").settled()
    assert rule is not None
    return rule


@proves("8.permissions.5", "A rule is made only by a person who allows a call, of the words that its question shows")
@proves("8.permissions.6", "What a rule allowed is recorded with the rule's id")
def test_a_command_that_was_allowed_for_good_runs_unasked_until_the_rule_is_revoked(folder: Folder) -> None:
    async def body(fl: fledge.Fledge) -> None:
        question = await asked(fl, "cat x/y")
        assert (question.always, question.for_subagents) == ("cat …", False)
        rule = await fl.approve(question.id, by="me", digest=question.digest, always=True)
        assert rule is not None
        here = str(folder.place.folder)
        assert (rule.words, rule.folder, rule.agent, rule.children) == (("cat",), here, "main", False)
        assert (rule.made_by, rule.made_at, await fl.permissions()) == ("me", folder.place.now, [rule])
        await fl.session("main").settled()
        for command in ("cat x/y", "cat x/y a/b"):
            reply = await say(fl, command)
            assert reply.text.startswith("heard: cat: x/y: No such file or directory\n")
        by_rule, other, by_me = await fl.approvals(decided=True)
        assert [(one.state, one.answered_by, one.rule) for one in (by_rule, other, by_me)] == [
            ("started", "a rule", rule.id),
            ("started", "a rule", rule.id),
            ("started", "me", rule.id),
        ]
        assert by_rule.arguments == '{"command":"cat x/y a/b"}'
        assert await fl.revoke_permission(rule.id[:4]) == rule
        assert (await asked(fl, "cat x/y a/b")).always == "cat …"
        assert await fl.permissions() == []

    folder.act(body)
    assert folder.files == []


@pytest.mark.parametrize(
    "command",
    [
        "echo hi there",
        "echo hi a/b",
        "echo",
        "echo hi; echo",
        "echo hi $(echo)",
        "echo hi > x/y",
        "echo  hi",
        "X=1 echo hi",
        "echo 'hi'",
    ],
)
def test_a_command_that_only_looks_like_the_rule_asks(folder: Folder, command: str) -> None:
    async def body(fl: fledge.Fledge) -> None:
        await allow(fl, "echo hi")
        await asked(fl, command)

    folder.act(body)


def test_a_rule_for_a_command_that_destroys_covers_no_other_files(folder: Folder) -> None:
    async def body(fl: fledge.Fledge) -> None:
        question = await asked(fl, "git checkout -- src/tmp.py")
        assert question.always == "git checkout -- src/tmp.py"
        await fl.approve(question.id, always=True)
        await fl.session("main").settled()
        assert (await say(fl, "git checkout -- src/tmp.py")).status != "pending"
        await asked(fl, "git checkout -- thesis/")

    folder.act(body)


@proves("8.permissions.11")
def test_a_setting_adds_commands_whose_rules_hold_for_any_paths(folder: Folder) -> None:
    async def body(fl: fledge.Fledge) -> None:
        question = await asked(fl, "echo hi x/y")
        assert question.always == "echo hi …"
        await fl.approve(question.id, always=True)
        await fl.session("main").settled()
        assert (await say(fl, "echo hi a/b c/d")).text.startswith("heard: hi a/b c/d\n")
        (rule,) = await fl.permissions()
        await fl.revoke_permission(rule.id)
        await asked(fl, "echo hi e/f")

    async def without(fl: fledge.Fledge) -> None:
        (question,) = await fl.approvals()
        with pytest.raises(fledge.Refused, match="no rule can be made of this call"):
            await fl.approve(question.id, always=True)
        assert await fl.approvals() == [question]

    folder.act(body, config=SETTINGS | {"tools": {"exec": {"anyPaths": ["echo hi"]}}})
    folder.act(without)


@proves("8.permissions.4")
@pytest.mark.parametrize(("children", "asks"), [(False, True), (True, False)])
def test_a_subagent_inherits_a_rule_only_if_that_was_ticked(folder: Folder, children: bool, asks: bool) -> None:
    async def body(fl: fledge.Fledge) -> None:
        await allow(fl, "echo hi", children=children)
        run = await fl.spawn("run: echo hi")
        await fl.until(lambda tx: bool(tx.approvals.open()) or tx.runs.load(run.session_key).ended is not None or None)
        assert [one.session_key for one in await fl.approvals()] == [run.session_key] * asks

    folder.act(body)


def test_the_rule_of_a_subagents_question_covers_the_next_subagent(folder: Folder) -> None:
    async def body(fl: fledge.Fledge) -> None:
        await fl.spawn("run: echo hi")
        await fl.until(lambda tx: tx.approvals.open() or None)
        (question,) = await fl.approvals()
        assert (question.always, question.for_subagents) == ("echo hi", True)
        rule = await fl.approve(question.id, always=True)
        assert rule is not None
        assert rule.children
        assert "heard: hi\n" in (await (await fl.spawn("run: echo hi"))).text

    folder.act(body)


def test_a_rule_holds_in_its_folder_and_for_its_agent_alone(folder: Folder, tmp_path: Path) -> None:
    async def make(fl: fledge.Fledge) -> None:
        await allow(fl, "echo hi", children=True)
        await asked(fl, "echo hi", "agent:scout:main")

    async def ask(fl: fledge.Fledge) -> None:
        await asked(fl, "echo hi", "elsewhere")

    folder.act(make, agents={"scout": {}})
    (tmp_path / "other").mkdir()
    other = Folder(tmp_path / "other")
    other.user = folder.user
    other.act(ask)


@proves("8.permissions.7", "A rule lifts no other bound: a denied tool stays denied, a protected file asks")
def test_a_rule_gives_no_tool_and_opens_no_protected_file(folder: Folder) -> None:
    async def make(fl: fledge.Fledge) -> None:
        await allow(fl, "echo hi")
        question = await asked(fl, "write echo hi")
        assert question.always == ""
        await fl.deny(question.id)

    async def use_it(fl: fledge.Fledge) -> None:
        assert "hi\n" not in (await say(fl, "echo hi")).text
        assert await fl.approvals() == []

    folder.act(make)
    folder.act(use_it, config=SETTINGS | {"tools": {"deny": ["exec"]}})


@pytest.mark.parametrize("command", ["launch", "echo hi && echo", "bash -c 'x'", "./run x", "rm *"])
def test_always_is_refused_where_no_rule_can_be_made_and_the_question_stays(folder: Folder, command: str) -> None:
    async def body(fl: fledge.Fledge) -> None:
        question = await asked(fl, command)
        assert question.always == ""
        with pytest.raises(fledge.Refused, match="no rule can be made of this call"):
            await fl.approve(question.id, always=True)
        assert await fl.approvals() == [question]
        assert await fl.approve(question.id) is None

    folder.act(body, config=SETTINGS | {"tools": {"launch": {"approval": "ask"}}})
    assert folder.files == []


def test_an_answer_that_does_not_count_makes_no_rule(folder: Folder) -> None:
    async def body(fl: fledge.Fledge) -> None:
        question = await asked(fl, "echo hi")
        with pytest.raises(fledge.Refused, match="a different call than the one that was shown"):
            await fl.approve(question.id, digest="of another", always=True)
        with pytest.raises(fledge.BadInput, match="children: needs always"):
            await fl.approve(question.id, children=True)
        with pytest.raises(fledge.NotFound):
            await fl.approve("nobody", always=True)
        await fl.deny(question.id)
        with pytest.raises(fledge.Refused, match="is denied"):
            await fl.approve(question.id, always=True)
        assert await fl.permissions() == []

    folder.act(body)
    assert folder.files == []


class Losing(InlineStore):
    """A store in which somebody else answers between reading a question and answering it."""

    steals = False

    async def transact(self, job: Callable[..., Any]) -> Any:
        if self.steals:
            self.steals = False
            await super().transact(_deny_all)
        return await super().transact(job)


def _deny_all(tx: Tx) -> None:
    for one in tx.approvals.open():
        assert tx.approvals.move(one.session, one.entry, one.index, "denied", "another")


def test_a_rule_whose_answer_came_too_late_is_taken_back(folder: Folder) -> None:
    store = Losing(folder.place.folder)

    async def body(fl: fledge.Fledge) -> None:
        question = await asked(fl, "echo hi")
        store.steals = True
        with pytest.raises(fledge.Refused, match="is denied"):
            await fl.approve(question.id, always=True)
        assert await fl.permissions() == []

    folder.act(body, store=store)
    assert folder.files == []


@proves("8.permissions.8", "A file that is no rule is refused in plain words and never counts")
@pytest.mark.parametrize("words", ["", "{", "[]", "\x00", '{"id": "x"}', "null"])
def test_a_broken_file_never_counts_and_is_named(folder: Folder, words: str) -> None:
    async def body(fl: fledge.Fledge) -> None:
        rule = await allow(fl, "echo hi")
        path = folder.user / FOLDER / f"{rule.id}.json"
        path.write_text(words)
        question = await asked(fl, "echo hi")
        for act in (fl.permissions(), fl.approve(question.id, always=True)):
            with pytest.raises(fledge.BadInput, match=f"{rule.id}.json: must be a rule.*it does not count: remove it"):
                await act
        assert await fl.approvals() == [question]
        path.unlink()
        assert await fl.approve(question.id, always=True) is not None

    folder.act(body)


# ---- a no with words -------------------------------------------------------------------------------------------------


@proves("8.approvals.7", "With a no the model reads the person's words, as theirs")
def test_the_model_is_told_what_the_person_says_with_a_no(folder: Folder) -> None:
    async def body(fl: fledge.Fledge) -> None:
        reply = await say(fl, "rm -r build")
        (question,) = await fl.approvals()
        for wrong in ("x" * 4001, 5):
            with pytest.raises(fledge.BadInput, match="words: must be a text of at most 4000 characters"):
                await fl.deny(question.id, words=wrong)  # type: ignore[arg-type]
        await fl.deny(question.id, by="me", words="  use make clean\nnot rm  ")
        told = (await fl.session("main").reply(reply.run_id)).text
        assert told == (
            "heard: exec was refused by the person who was asked; it was not run.\n"
            "The person's words: use make clean\nnot rm"
        )
        (decided,) = await fl.approvals(decided=True)
        assert (decided.state, decided.answered_by, decided.words) == ("denied", "me", "use make clean\nnot rm")

    folder.act(body)


# ---- a crash ---------------------------------------------------------------------------------------------------------

DIES = """
import asyncio, os, signal, sys
from pathlib import Path
import fledge
from fledge.store.sqlite import SqliteStore
from fledge.testing import ScriptedModel
from tests.api.test_permissions import SETTINGS, runs, say

class Dying:
    "A store whose process is killed before it writes anything once a rule is kept."

    def __init__(self, store, rules):
        self._store, self._rules = store, rules

    async def transact(self, job):
        if self._rules.exists():
            os.kill(os.getpid(), signal.SIGKILL)
        return await self._store.transact(job)

    def __getattr__(self, name):
        return getattr(self._store, name)

async def main(state, user):
    store = Dying(SqliteStore.open(Path(state)), Path(user) / "permissions")
    env = {"FLEDGE_CONFIG": user, "HOME": user, "PATH": os.environ["PATH"]}
    options = {"config": SETTINGS, "workspace": state, "env": env, "store": store}
    async with fledge.open(state, model=ScriptedModel(runs), **options) as fl:
        await say(fl, "echo hi")
        (question,) = await fl.approvals()
        await fl.approve(question.id, always=True)

asyncio.run(main(*sys.argv[1:]))
"""


@proves("8.permissions.9", "A rule is kept before the answer counts: killed between, the question is still open")
def test_a_process_that_is_killed_between_rule_and_answer_leaves_an_open_question(folder: Folder) -> None:
    state = folder.place.folder
    done = subprocess.run([sys.executable, "-c", DIES, str(state), str(folder.user)], check=False, capture_output=True)
    assert (done.returncode, done.stderr) == (-signal.SIGKILL, b"")

    async def body(fl: fledge.Fledge) -> None:
        (question,) = await fl.approvals()
        (rule,) = await fl.permissions()
        assert question.always == " ".join(rule.words)
        again = await fl.approve(question.id, always=True)
        assert again is not None
        assert [one.id for one in await fl.permissions()] == [again.id] == [rule.id]
        await fl.session("main").settled()

    folder.place.now = time.time()
    folder.act(body)
    assert len([name for name in folder.files if name.endswith(".json")]) == 1
