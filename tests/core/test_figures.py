"""Durations, counts and money, as people read them."""

import pytest

from fledge.core.figures import count_text, duration, elapsed, money


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (None, "n/a"),
        (float("nan"), "n/a"),
        (float("inf"), "n/a"),
        (-5, "0s"),
        (0.49, "0s"),
        (0.5, "1s"),
        (59.49, "59s"),
        (59.5, "1m0s"),
        (61, "1m1s"),
        (3599, "59m59s"),
        (3600, "1h0m"),
        (3660, "1h1m"),
        (7325, "2h2m"),
        (90_000, "25h0m"),
    ],
)
def test_a_duration_is_rounded_and_reads_in_its_two_largest_units(seconds: float | None, shown: str) -> None:
    assert duration(seconds) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (-1, "0s"),
        (0.9, "0s"),
        (59.9, "59s"),
        (60, "1m00s"),
        (3599, "59m59s"),
        (3600, "1h00m"),
        (7500, "2h05m"),
        (86_399, "23h59m"),
        (86_400, "1d0h"),
        (273_600, "3d4h"),
    ],
)
def test_elapsed_time_counts_what_has_passed_and_keeps_its_width(seconds: float, shown: str) -> None:
    assert elapsed(seconds) == shown


@pytest.mark.parametrize(
    ("number", "shown"),
    [
        (None, "n/a"),
        (0, "0"),
        (999, "999"),
        (1000, "1.0k"),
        (1049, "1.0k"),
        (1050, "1.1k"),
        (12_149, "12.1k"),
        (999_949, "999.9k"),
        (999_950, "1.0m"),
        (1_000_000, "1.0m"),
        (1_249_999, "1.2m"),
        (1_250_000, "1.3m"),
        (123_456_789, "123.5m"),
    ],
)
def test_a_count_reads_as_a_number_thousands_or_millions(number: int | None, shown: str) -> None:
    assert count_text(number) == shown


@pytest.mark.parametrize(
    ("usd", "shown"),
    [
        (-1.0, "$0.00"),
        (0.0, "$0.00"),
        (0.00001, "<$0.0001"),
        (0.00009, "<$0.0001"),
        (0.0001, "$0.0001"),
        (0.0042, "$0.0042"),
        (0.0099, "$0.0099"),
        (0.01, "$0.01"),
        (0.014, "$0.01"),
        (1234.5, "$1234.50"),
    ],
)
def test_money_reads_in_cents_and_below_a_cent_is_still_readable(usd: float, shown: str) -> None:
    assert money(usd) == shown
