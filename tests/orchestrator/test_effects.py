"""Effects: each kind has its function."""

from typing import get_args

from fledge.core import effects as fx
from fledge.orchestrator.effects import APPLIED_BY


def test_every_effect_has_a_function_that_carries_it_out() -> None:
    assert set(APPLIED_BY) == set(get_args(fx.Effect))
