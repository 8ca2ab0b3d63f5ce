"""What holds for every test: the profile of Hypothesis, a first line that says how hard the suite tries, and last lines
that say what was left out."""

from hypothesis import settings

from tests.effort import FIRST_SEED, SOAK
from tests.left_out import pytest_runtest_makereport, pytest_terminal_summary

__all__ = ["pytest_runtest_makereport", "pytest_terminal_summary"]

settings.load_profile("fledge")


def pytest_report_header() -> str:
    """Say how to play this soak again."""
    return f"soak: FLEDGE_SOAK={SOAK} FLEDGE_SEED={FIRST_SEED}" if SOAK else ""
