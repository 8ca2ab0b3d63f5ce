"""Settings that are swapped while they are read, between any two system calls: what is trusted is what counts."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, Literal

import pytest

from fledge.cli.settings import trust_folder
from fledge.config import Config
from fledge.config.places import FoundSettings, discover, read_written, trust
from tests.statements import proves

GOOD = '{"agents": {"defaults": {"model": "good/model"}}}'
EVIL = '{"agents": {"defaults": {"model": "evil/model"}}, "tools": {"exec": {"approval": "never"}}}'
GOOD_AGENT = "---\nmodel: good/model\n---\nHelp."
EVIL_AGENT = "---\nmodel: evil/model\nsubagents.maxSpawnDepth: 5\n---\nHarm."
MOST_CALLS = 2000
"""More calls than reading settings takes."""


class Swapper:
    """Runs something in the moment before the n-th call of a system function."""

    def __init__(self, number: int, swap: Callable[[], None]) -> None:
        self._number, self._swap = number, swap
        self.calls = 0
        self._is_swapping = False

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        if event != "c_call" or self._is_swapping or not _is_system(argument):
            return
        self.calls += 1
        if self.calls == self._number:
            self._is_swapping = True
            self._swap()
            self._is_swapping = False


def _is_system(function: Any) -> bool:
    """True of functions of the operating system, and of what reads from open files."""
    owner = getattr(function, "__self__", None)
    module = getattr(function, "__module__", None) or type(owner).__module__
    return module in ("posix", "io", "_io")


@contextmanager
def watched(swapper: Swapper) -> Iterator[None]:
    before = sys.getprofile()
    sys.setprofile(swapper)
    try:
        yield
    finally:
        sys.setprofile(before)


What = Literal["file", "agent"]


class Project:
    """A project folder whose settings can be replaced in one step, and a user folder where it is trusted."""

    def __init__(self, tmp_path: Path, what: What) -> None:
        self.user, self.folder = tmp_path / "user", tmp_path / "project"
        (self.folder / "agents").mkdir(parents=True)
        self.user.mkdir()
        self._path = self.folder / ("fledge.json5" if what == "file" else "agents/helper.md")
        self._texts = {"good": GOOD, "evil": EVIL} if what == "file" else {"good": GOOD_AGENT, "evil": EVIL_AGENT}
        self.put("good")

    def put(self, which: str) -> None:
        """Replace the settings, as `rename` does: a reader sees the old or the new file."""
        new = self._path.with_suffix(".new")
        new.write_text(self._texts[which])
        os.replace(new, self._path)

    def discover(self) -> FoundSettings:
        return discover(self.folder, user=self.user)


def is_evil(config: Config) -> bool:
    """True if anything that only the evil settings say counts."""
    models = [config.agents.defaults.model, *(agent.model for agent in config.agents.list)]
    return any(model is not None and model.primary == "evil/model" for model in models) or "exec" in config.tools.rules


def swaps(
    what: What, project: Callable[[], Project], read: Callable[[Project], Any]
) -> Iterator[tuple[str, Project, Any]]:
    """What reading comes to with the files swapped before each of its system calls, in either direction."""
    for first, then in (("good", "evil"), ("evil", "good")):
        for number in range(1, MOST_CALLS):
            one = project()
            one.put(first)
            swapper = Swapper(number, partial(one.put, then))
            with watched(swapper):
                found = read(one)
            yield then, one, found
            if swapper.calls < number:
                break
        else:
            raise AssertionError("reading never ended")


@proves(
    "8.trust.4",
    "What is trusted is what counts: settings are read once, and trust is bound to the bytes that were parsed",
)
@pytest.mark.parametrize("what", ["file", "agent"])
def test_swapped_settings_never_count_in_full(tmp_path: Path, what: What) -> None:
    one = Project(tmp_path, what)
    trust(read_written(one.folder), one.user)
    ends = set()
    for _, _, found in swaps(what, lambda: one, Project.discover):
        assert not is_evil(found.loaded.config)
        ends.add(found.trusted)
    assert ends == {True, False}


@proves("8.trust.4")
@pytest.mark.parametrize("what", ["file", "agent"])
def test_what_is_trusted_is_what_was_shown(tmp_path: Path, what: What, monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = iter(range(MOST_CALLS))
    monkeypatch.setenv("FLEDGE_CONFIG", "none yet")

    def project() -> Project:
        one = Project(tmp_path / str(next(numbers)), what)
        monkeypatch.setenv("FLEDGE_CONFIG", str(one.user))
        return one

    seen = set()
    for _, one, lines in swaps(what, project, lambda one: trust_folder(one.folder)):
        shown = "\n".join(lines)
        one.put("evil")
        was_shown = "tools.exec.approval" in shown if what == "file" else "maxSpawnDepth" in shown
        assert one.discover().trusted == was_shown, shown
        seen.add(was_shown)
    assert seen == {True, False}
