"""Hooks for every test: the profile of Hypothesis, tests that only root can run, a first line that says how hard the
suite tries, and last lines that say what was left out."""

import os

import pytest
from hypothesis import settings

from tests.effort import FIRST_SEED, SOAK
from tests.left_out import pytest_runtest_makereport, pytest_terminal_summary

__all__ = ["pytest_runtest_makereport", "pytest_terminal_summary"]

settings.load_profile("fledge")


def pytest_report_header() -> str:
    """Say how to play this soak again."""
    return f"soak: FLEDGE_SOAK={SOAK} FLEDGE_SEED={FIRST_SEED}" if SOAK else ""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Take tests that only root can run out of the run of any other user: CI runs `pytest -m root` as root."""
    if os.geteuid() == 0:
        return
    only_root = {item for item in items if any(mark.kwargs.get("only") for mark in item.iter_markers("root"))}
    config.hook.pytest_deselected(items=list(only_root))
    items[:] = [item for item in items if item not in only_root]
