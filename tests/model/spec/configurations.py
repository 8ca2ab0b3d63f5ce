"""What is searched: trees of one to three runs, with what may happen to them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Event = Literal[
    "approve",
    "budget",
    "crash",
    "foreign",
    "gone",
    "kill",
    "provisional",
    "read",
    "reject",
    "resume",
    "say",
    "send",
    "steer",
    "stop",
    "timeout",
    "yield",
]
Option = Literal[
    "api",
    "empty",
    "error",
    "no_cap",
    "no_expiry",
    "physical",
    "plan_blocks",
    "skip",
    "spawn_fails",
    "spins",
    "sweep",
    "wake_copies",
]
Mode = Literal["collect", "followup", "steer", "interrupt"]


@dataclass(frozen=True)
class Configuration:
    """A tree of runs, its limits, and the events that may happen in it."""

    parents: tuple[int, ...]
    """The parent of each run; 0 is main, whose own entry means nothing."""
    events: Mapping[Event, int] = field(default_factory=dict)
    """How often each event may happen."""
    targets: Mapping[Event, tuple[int, ...]] = field(default_factory=dict)
    """Which runs an event may name."""
    options: tuple[Option, ...] = ()
    """`api`: a program is the requester. `empty`, `error`, `skip`: a run may answer NO_REPLY, an error, ANNOUNCE_SKIP.
    `spawn_fails`: preparing a child may fail. `spins`: a model may repeat a step that changes nothing. `sweep`: settled
    runs are archived. `physical`: model calls in flight are counted against the lane, those of superseded drivers too.
    The others are wrong on purpose, see `READINGS`."""
    width: int = 1
    """Of the lane."""
    cap: int = 5
    """Active children of a session."""
    wakes: int = 10
    modes: Mapping[int, Mode] = field(default_factory=dict)
    """The queue mode of a session's completions, `collect` if not said."""
    people: Mode = "steer"
    """The queue mode of what people say to main (the event `say`)."""
    deleted: tuple[int, ...] = ()
    """Runs whose session is deleted when they are settled."""
    planning: tuple[int, ...] = ()
    """Runs in plan mode."""
    children_first: bool = False
    """A kill in several commits begins with the leaves."""


ONE, TWO, NEST, NEST2, DEEP = (0, 0), (0, 0, 0), (0, 0, 1), (0, 0, 1, 1), (0, 0, 1, 2)

CONFIGURATIONS = {
    "single-crash": Configuration(ONE, {"crash": 2}, options=("empty", "skip", "error", "sweep")),
    "single-delete": Configuration(
        ONE, {"crash": 1, "send": 1}, targets={"send": (1,)}, options=("sweep",), deleted=(1,)
    ),
    "single-kill": Configuration(
        ONE, {"crash": 1, "kill": 1, "steer": 1}, targets={"kill": (1,), "steer": (1,)}, options=("sweep", "physical")
    ),
    "single-send": Configuration(
        ONE, {"crash": 1, "send": 2, "kill": 1}, targets={"send": (1,), "kill": (1,)}, options=("sweep",)
    ),
    "single-gone": Configuration(ONE, {"crash": 1, "gone": 1}, options=("error",)),
    "two-lane1": Configuration(
        TWO, {"crash": 1, "provisional": 1, "kill": 1}, targets={"kill": (1,)}, options=("sweep",)
    ),
    "two-phys": Configuration(
        TWO,
        {"steer": 1, "kill": 1, "timeout": 1},
        targets={"kill": (1,), "steer": (1,), "timeout": (1,)},
        options=("physical",),
    ),
    "two-cap1": Configuration(
        TWO, {"crash": 1, "kill": 1}, targets={"kill": (1,)}, options=("spawn_fails", "sweep"), width=2, cap=1
    ),
    "two-interrupt": Configuration(TWO, {"crash": 1}, width=2, modes={0: "interrupt"}),
    "two-steermode": Configuration(TWO, {"crash": 1}, width=2, modes={0: "steer"}),
    "nested-crash": Configuration(NEST, {"crash": 1}, options=("sweep", "empty")),
    "nested-skip": Configuration(NEST, options=("skip", "error", "spawn_fails", "sweep")),
    "nested-steermode": Configuration(
        NEST, {"crash": 1}, options=("error", "sweep"), width=2, modes={0: "steer", 1: "steer"}
    ),
    "nested-kill-leaf": Configuration(NEST, {"kill": 1, "crash": 1}, targets={"kill": (2,)}, options=("sweep",)),
    "nested-kill": Configuration(NEST, {"kill": 1, "crash": 1}, targets={"kill": (1,)}, options=("sweep",), width=2),
    "nested-kill-send": Configuration(NEST, {"kill": 1, "send": 1}, targets={"kill": (1,), "send": (1,)}, width=2),
    "nested-kill-up": Configuration(NEST, {"kill": 1}, targets={"kill": (1,)}, width=2, children_first=True),
    "nested-timeout": Configuration(
        NEST, {"timeout": 1, "crash": 1}, targets={"timeout": (1,)}, options=("sweep",), width=2, deleted=(1,)
    ),
    "nested-error": Configuration(NEST, {"crash": 1}, options=("error", "sweep"), width=2, deleted=(1, 2)),
    "nested-budget": Configuration(
        NEST, {"budget": 1, "crash": 1}, targets={"budget": (1,)}, options=("sweep",), width=2
    ),
    "nested-steer": Configuration(
        NEST, {"steer": 1, "crash": 1, "timeout": 1}, targets={"steer": (1,), "timeout": (1,)}, options=("sweep",)
    ),
    "nested-send": Configuration(NEST, {"send": 1, "crash": 1}, targets={"send": (1,)}, options=("sweep",)),
    "nested-yield": Configuration(NEST, {"crash": 1, "yield": 1}, options=("sweep",)),
    "nested-yield-send": Configuration(NEST, {"yield": 1, "send": 2}, targets={"send": (1,)}, options=("sweep",)),
    "single-spin": Configuration(ONE, {"crash": 1, "send": 1}, targets={"send": (1,)}, options=("spins", "sweep")),
    "nested-spin": Configuration(NEST, {"crash": 1, "yield": 1}, options=("spins", "sweep"), wakes=1),
    "nested-interrupt": Configuration(NEST2, {"send": 1}, targets={"send": (1,)}, width=2, modes={1: "interrupt"}),
    "nested-prov": Configuration(NEST, {"provisional": 1, "crash": 1, "steer": 1}, targets={"steer": (2,)}),
    "nested-gone": Configuration(
        NEST, {"gone": 1, "timeout": 1}, targets={"timeout": (1,)}, options=("error",), width=2
    ),
    "nested2-yield": Configuration(NEST2, {"yield": 2}, options=("sweep",), width=2),
    "nested2-wakes": Configuration(NEST2, {"yield": 2}, width=2, wakes=1),
    "nested2-kill": Configuration(NEST2, {"kill": 1}, targets={"kill": (1,)}, options=("sweep",), width=2),
    "deep-error": Configuration(DEEP, options=("error", "sweep")),
    "deep-kill": Configuration(DEEP, {"kill": 1, "crash": 1}, targets={"kill": (1, 2)}, width=2),
    "plan": Configuration(
        ONE,
        {"crash": 1, "approve": 1, "reject": 1, "kill": 1},
        targets={"kill": (1,)},
        options=("sweep", "error"),
        planning=(1,),
    ),
    "nested-plan": Configuration(NEST, {"approve": 1, "reject": 1}, options=("sweep",), planning=(2,)),
    "api": Configuration(ONE, {"read": 1, "crash": 1}, options=("api", "error", "sweep")),
    "api-tree": Configuration(
        NEST, {"read": 1, "crash": 1, "kill": 1}, targets={"kill": (2,)}, options=("api", "sweep")
    ),
    "nested-delete-send": Configuration(
        NEST, {"send": 1, "timeout": 1, "crash": 1}, targets={"send": (1, 2), "timeout": (1,)}, deleted=(1, 2)
    ),
    "nested-kill-ended": Configuration(
        NEST, {"kill": 1, "timeout": 1}, targets={"kill": (1,), "timeout": (1,)}, options=("sweep",), width=2
    ),
    "plan-cap": Configuration(
        TWO, {"approve": 1, "reject": 1, "kill": 1}, targets={"kill": (1,)}, options=("sweep",), cap=1, planning=(1,)
    ),
    "nested-plan-kill": Configuration(
        NEST, {"approve": 1, "kill": 1, "crash": 1}, targets={"kill": (1, 2)}, options=("sweep",), planning=(2,)
    ),
    "foreign-nested": Configuration(
        NEST, {"foreign": 1, "kill": 1}, targets={"foreign": (2,), "kill": (1, 2)}, options=("error", "sweep")
    ),
    "say-steer": Configuration(ONE, {"say": 2, "crash": 1}),
    "say-followup": Configuration(ONE, {"say": 2, "crash": 1}, people="followup"),
    "say-collect": Configuration(ONE, {"say": 2, "crash": 1}, people="collect"),
    "say-interrupt": Configuration(ONE, {"say": 2, "crash": 1}, people="interrupt"),
    "say-stop": Configuration(ONE, {"say": 2, "stop": 1}, people="followup"),
    "two-followup": Configuration(TWO, {"say": 1, "crash": 1}, width=2, modes={0: "followup"}, people="followup"),
    "two-say-steer": Configuration(TWO, {"say": 1}, width=2, modes={0: "followup"}),
    "two-say-collect": Configuration(TWO, {"say": 2}, width=2, modes={0: "interrupt"}, people="collect"),
    "stop-main": Configuration(NEST, {"stop": 1, "crash": 1}, options=("sweep",), width=2),
    "single-resume": Configuration(
        ONE, {"crash": 1, "kill": 2, "resume": 2, "send": 1}, targets={"kill": (1,), "resume": (1,), "send": (1,)}
    ),
    "nested-resume": Configuration(
        NEST,
        {"crash": 1, "kill": 1, "resume": 2},
        targets={"kill": (1, 2), "resume": (1, 2)},
        options=("sweep",),
        width=2,
    ),
    "resume-cap": Configuration(
        TWO, {"crash": 1, "kill": 1, "resume": 1}, targets={"kill": (1,), "resume": (1,)}, width=2, cap=1
    ),
    "resume-failed": Configuration(
        ONE,
        {"crash": 1, "timeout": 1, "resume": 2, "steer": 1},
        targets={"timeout": (1,), "resume": (1,), "steer": (1,)},
        options=("error", "sweep"),
    ),
    "resume-unread": Configuration(
        NEST,
        {"crash": 1, "kill": 1, "resume": 1, "send": 1},
        targets={"kill": (1,), "resume": (1,), "send": (1,)},
        options=("sweep",),
        width=2,
    ),
    "resume-timeout": Configuration(
        NEST,
        {"timeout": 1, "resume": 2},
        targets={"timeout": (1,), "resume": (1, 2)},
        options=("error", "sweep"),
        width=2,
    ),
    "resume-gone": Configuration(
        ONE, {"crash": 1, "gone": 1, "resume": 1}, targets={"resume": (1,)}, options=("error", "sweep")
    ),
    "resume-late": Configuration(
        NEST,
        {"foreign": 1, "kill": 1, "resume": 1},
        targets={"foreign": (2,), "kill": (1,), "resume": (1,)},
        options=("error", "sweep"),
    ),
    "foreign-late": Configuration(
        ONE, {"foreign": 1, "crash": 1}, targets={"foreign": (1,)}, options=("error", "sweep")
    ),
}
"""Each is searched with every rule, and with every rule but one."""

MIXES = {
    "mix-control": Configuration(
        NEST,
        {"crash": 1, "kill": 1, "steer": 1, "send": 1},
        targets={"kill": (1, 2), "steer": (1,), "send": (1,)},
        options=("sweep",),
    ),
    "mix-faults": Configuration(
        NEST,
        {"crash": 1, "timeout": 1, "kill": 1, "provisional": 1},
        targets={"kill": (1,), "timeout": (1,)},
        options=("error", "empty", "sweep"),
        width=2,
        deleted=(1, 2),
    ),
    "mix-yield": Configuration(NEST2, {"yield": 1, "kill": 1, "send": 1}, targets={"kill": (1, 2), "send": (1,)}),
    "mix-deep": Configuration(
        DEEP, {"timeout": 1, "kill": 1}, targets={"kill": (1, 2), "timeout": (1, 2)}, options=("error",)
    ),
    "mix-plan": Configuration(
        NEST,
        {"approve": 1, "reject": 1, "kill": 1, "crash": 1, "send": 1},
        targets={"kill": (1, 2), "send": (1,)},
        options=("sweep",),
        planning=(2,),
    ),
    "mix-crash2": Configuration(
        NEST,
        {"crash": 2, "kill": 1, "timeout": 1},
        targets={"kill": (1, 2), "timeout": (1,)},
        options=("sweep", "skip"),
        width=2,
        deleted=(1,),
    ),
    "mix-phys": Configuration(
        NEST2,
        {"steer": 1, "kill": 1, "timeout": 1},
        targets={"kill": (1,), "steer": (2,), "timeout": (1,)},
        options=("physical",),
    ),
    "mix-gone": Configuration(
        NEST,
        {"gone": 1, "timeout": 1, "kill": 1, "crash": 1},
        targets={"kill": (1, 2), "timeout": (1,)},
        options=("error", "skip", "sweep"),
    ),
    "mix-interrupt": Configuration(
        NEST2,
        {"send": 1, "kill": 1, "crash": 1},
        targets={"kill": (1,), "send": (1,)},
        width=2,
        modes={0: "interrupt", 1: "interrupt"},
    ),
}
"""Larger ones, searched with every rule."""

READINGS = {
    "plan-blocks": Configuration(NEST, {"approve": 1}, options=("plan_blocks", "no_expiry"), planning=(2,)),
    "wake-copies": Configuration(NEST, options=("wake_copies",)),
    "no-cap": Configuration(TWO, options=("no_cap",), width=2, cap=1),
}
"""Other readings of a sentence, and mutants: each must break a property with every rule on."""

ALL = CONFIGURATIONS | MIXES | READINGS
