"""Tests that need a program this machine may not have: they are left out here, and fail in CI.

`requires("chromium")` skips the test that calls it. Every skip of the suite is printed at its end, with the command
that installs what is missing; with `CI` set a skip is a failure. `conftest.py` gives the hooks of this file to pytest.
They work with pytest-xdist: workers make the reports, and the process that started them prints.
"""

import os
import shutil
from collections import Counter
from collections.abc import Callable, Generator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from fledge.tools.sandbox import find_sandbox
from tests.crash.tracing import is_permitted
from tests.store.postgres_programs import binaries


class Requirement(NamedTuple):
    """Something that tests need, whether it works here, and the command that installs it."""

    works: Callable[[], bool]
    install: str


REQUIREMENTS = {
    "bubblewrap": Requirement(
        lambda: find_sandbox(Path()) is not None,
        "apt-get install bubblewrap (it needs user namespaces)",
    ),
    "postgresql": Requirement(lambda: binaries() is not None, "apt-get install postgresql"),
    "ptrace": Requirement(is_permitted, "allow a process to trace its children, on Linux on x86-64 or ARM64"),
    "tmux": Requirement(lambda: shutil.which("tmux") is not None, "apt-get install tmux"),
    "chromium": Requirement(lambda: shutil.which("chromium") is not None, "apt-get install chromium"),
}


@cache
def works(name: str) -> bool:
    """True if the tests that need it can run here. Looked up once per process."""
    return REQUIREMENTS[name].works()


def requires(name: str) -> None:
    """Leave the test out that calls this, or the tests of the fixture, if the requirement is missing."""
    if not works(name):
        pytest.skip(f"{name} does not work here: {REQUIREMENTS[name].install}")


def _reason(report: pytest.TestReport) -> str:
    """Why a test was skipped, without the place."""
    words = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return words.removeprefix("Skipped: ")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """With CI set a skip is a failure."""
    report = yield
    if report.skipped and os.environ.get("CI"):
        report.outcome, report.longrepr = "failed", f"CI leaves nothing out: {_reason(report)}"
    return report


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say what was left out, once for each reason."""
    left_out = Counter(_reason(report) for report in terminalreporter.stats.get("skipped", []))
    for reason, tests in sorted(left_out.items()):
        terminalreporter.write_line(f"left out: {tests} test{'s' * (tests > 1)}, because {reason}", yellow=True)
