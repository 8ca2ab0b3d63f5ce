"""What is searched: a conversation with none to three children, and what may happen to it."""

from typing import Final

from tests.model.turns.world import Configuration

CONFIGURATIONS: Final = {
    "alone": Configuration(0, {"message": 2, "step": 1, "fail": 1, "stop": 1, "withdraw": 1, "crash": 1}),
    "crash": Configuration(1, {"message": 1, "step": 1, "crash": 3, "exit": 1}),
    "crash for ever": Configuration(1, {"message": 1, "yield": 1, "notice": 1}, for_ever=("crash",)),
    "wait for all": Configuration(2, {"message": 2, "yield": 1, "crash": 1, "kill": 1}),
    "wait for some": Configuration(2, {"message": 1, "yield": 2, "kill": 1}, asks_for=("all", "any", 2)),
    "yield for ever": Configuration(1, {"message": 1, "kill": 1}, for_ever=("yield",)),
    "steer": Configuration(2, {"message": 2, "yield": 1, "step": 1, "crash": 1}, completions="steer"),
    "followup": Configuration(2, {"message": 2, "yield": 1, "step": 1}, people="followup", completions="followup"),
    "collect": Configuration(2, {"message": 2, "yield": 1, "step": 1, "crash": 1}, people="collect"),
    "interrupt": Configuration(2, {"message": 2, "yield": 1, "ask": 1}, people="interrupt", completions="interrupt"),
    "ask": Configuration(1, {"message": 2, "yield": 1, "ask": 2, "stop": 1, "crash": 1}),
    "fail": Configuration(1, {"message": 2, "yield": 1, "fail": 2, "limit": 1}),
    "break for ever": Configuration(1, {"message": 2, "yield": 1, "fail": 1, "step": 1}, for_ever=("break",)),
    "stop": Configuration(2, {"message": 1, "yield": 1, "stop": 1, "interrupt": 1, "ask": 1}),
    "timeout": Configuration(1, {"message": 2, "yield": 1, "timeout": 1, "step": 1, "crash": 1}),
    "withdraw": Configuration(1, {"message": 2, "yield": 1, "withdraw": 2, "fail": 1}),
    "heartbeat": Configuration(1, {"message": 1, "yield": 1, "beat": 1, "notice": 1, "crash": 1, "stop": 1}),
    "fire and forget": Configuration(2, {"message": 1, "yield": 1, "step": 1, "stop": 1}, fire_and_forget=True),
    "hooks": Configuration(2, {"message": 1, "yield": 1, "stop": 1}, asks_for=("all", "any"), hooks=True),
    "three children": Configuration(3, {"message": 2, "yield": 2, "kill": 1}, asks_for=("all", "any", 2)),
    "people": Configuration(2, {"message": 3, "yield": 2, "ask": 1, "stop": 1, "timeout": 1, "withdraw": 1}),
}
"""Searched in every run of the suite."""
WIDE: Final = {
    "faults": Configuration(2, {"message": 2, "yield": 2, "crash": 3, "fail": 1, "exit": 1, "kill": 1}),
    "beats": Configuration(2, {"message": 2, "yield": 2, "beat": 2, "notice": 2, "crash": 1}),
    "followup, wide": Configuration(
        2, {"message": 3, "yield": 2, "step": 2, "crash": 1, "stop": 1}, people="followup", completions="followup"
    ),
    "interrupt, wide": Configuration(
        2, {"message": 3, "yield": 2, "ask": 2, "crash": 1, "stop": 1}, people="interrupt", completions="interrupt"
    ),
    "collect, wide": Configuration(
        2, {"message": 3, "yield": 2, "step": 2, "crash": 1, "stop": 1, "withdraw": 1}, people="collect"
    ),
}
"""Searched in a soak."""
