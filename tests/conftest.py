"""What holds for every test: the profile of Hypothesis, and a first line that says how hard the suite tries."""

from hypothesis import settings

from tests.effort import FIRST_SEED, SOAK

settings.load_profile("fledge")


def pytest_report_header() -> str:
    """Say how to play this soak again."""
    return f"soak: FLEDGE_SOAK={SOAK} FLEDGE_SEED={FIRST_SEED}" if SOAK else ""
