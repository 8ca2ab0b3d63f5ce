"""Any order of moves on the real engine, every model's word chosen, the process killed in between: nothing lost,
nothing twice, every run ends, no limit exceeded. A failure is a short list of moves, each with a line on what it did.
"""

from collections.abc import Sequence
from contextlib import closing
from functools import partial
from itertools import product
from typing import Any, Literal, TypeVar

import msgspec
import pytest
from hypothesis import Phase, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from fledge.config import parse
from fledge.core.inbox import QueueMode, QueueSettings
from fledge.core.progress import StepLimits
from fledge.core.run import Killed, Run
from fledge.models.base import Broke, Call
from fledge.models.scripted import ScriptedReply, use
from fledge.orchestrator import control, spawn, steps
from fledge.orchestrator.commit import Rules
from fledge.orchestrator.spawn_params import limits_in
from fledge.store.base import Approval
from tests.effort import effort
from tests.model.house import Held, House, Word
from tests.sim.broken import (
    AnnouncesTwice,
    ForgetsToCount,
    KeepsSlots,
    KnowsNoWidths,
    LosesRows,
    RaisesNoGeneration,
    SleepsOn,
    TellsTheWrongOne,
    TellsTwice,
)
from tests.sim.people import MAIN, OTHER, Deciding, program_spawn
from tests.sim.schedule import Beyond, Schedule
from tests.sim.watch import Spy
from tests.statements import proves

T = TypeVar("T")

PICK = st.integers(0, 7)
USUAL = StepLimits()
ASKED = st.sampled_from([None, "all", "any", 1, 2])
THEN = st.sampled_from([None, "all", "any", 1, 2])
TERMS = st.sampled_from(
    [
        {},
        {},
        {"planMode": True},
        {"planMode": True},
        {"planMode": True},
        {"cleanup": "delete"},
        {"expectsCompletionMessage": False},
        {"runTimeoutSeconds": 20},
        {"thread": True, "mode": "session"},
    ]
)
PAUSE = st.sampled_from([None, None, None, 0.0, 0.002])
"""A move mostly ends when nothing more happens by itself; else the next one comes in between."""


def plan(
    mode: QueueMode, widths: dict[str, int], hours: float, deaf: bool, slow: int, steps: StepLimits = USUAL
) -> Schedule:
    """What the machine decides before anything happens. `slow`: 0, or by which seed commits take time."""
    subagents = {"maxSpawnDepth": 3, "maxChildrenPerAgent": 3, "maxConcurrent": widths["subagent"]}
    document = {"agents": {"defaults": {"subagents": subagents}}, "plan": {"approvalHours": hours}}
    return Schedule(
        seed=slow,
        config=parse(msgspec.json.encode(document).decode()).config,
        rules=Rules(queue=QueueSettings(mode=mode, people=mode), widths=widths),
        acts=(),
        deaths=(),
        approval_s=60.0,
        window=100_000,
        trouble=0.0,
        retries=False,
        reruns=0.1 if slow else 0.0,
        slow_store=slow > 0,
        lingering=deaf,
        runs=1000,
        beyond=Beyond(),
        steps=steps,
    )


class EngineMoves(RuleBasedStateMachine):
    spy: type[Spy] = Spy
    """How the store is watched; or broken, to see that it is found out."""

    @initialize(
        mode=st.sampled_from(["collect", "steer", "followup", "steer-backlog", "interrupt"]),
        widths=st.sampled_from([(1, 1), (1, 2), (2, 3)]),
        hours=st.sampled_from([1.0, 0.01]),
        deaf=st.booleans(),
        slow=st.integers(0, 9),
        steps=st.sampled_from([USUAL, USUAL, StepLimits(max_steps=3, max_repeated=2)]),
        children=st.integers(0, 2),
        terms=TERMS,
        workers=st.integers(0, 2),
        then=THEN,
    )
    def open(
        self,
        mode: QueueMode,
        widths: tuple[int, int],
        hours: float,
        deaf: bool,
        slow: int,
        steps: StepLimits,
        children: int,
        terms: dict[str, Any],
        workers: int,
        then: Any,
    ) -> None:
        """Start from a small tree, so that most moves have something to move."""
        self._said = self._spawned = 0
        lanes = {"main": widths[0], "subagent": widths[1], "nested": 1}
        self.house = House(plan(mode, lanes, hours, deaf, slow, steps), self.spy)
        self._commit("a person says something to main", self._say(MAIN))
        if children:
            self._spawn(self.house.waiting("model")[0], children, terms, None, None)
        child = next((held for held in self.house.waiting("model") if held.label != "main"), None)
        if child is not None and workers:
            self._spawn(child, workers, {}, then, None)

    def teardown(self) -> None:
        if hasattr(self, "house"):
            try:
                if not self.house.witness.wrong:
                    self.house.settle()
            finally:
                self.house.close()

    # ---- choosing

    def _do(self, words: str, move: Any) -> None:
        note(f"    # {words}")
        move()

    def _commit(self, words: str, decide: Deciding, pause_s: float | None = None) -> None:
        self._do(words, lambda: self.house.commit(decide, pause_s))

    def _give(self, held: Held, words: str, word: Word, pause_s: float | None) -> None:
        self._do(f"{held.label} {words}", lambda: self.house.give(held, word, pause_s))

    def _thinking(self, pick: int) -> Held:
        """One whose model is asked; mostly a child."""
        models = self.house.waiting("model")
        children = [held for held in models if held.label not in ("main", "other")]
        return _one(models if pick % 2 else children or models, pick // 2)

    # ---- what models say

    @precondition(lambda self: self.house.waiting("model"))
    @rule(pick=PICK, pause_s=PAUSE)
    def says(self, pick: int, pause_s: float | None) -> None:
        self._give(self._thinking(pick), "says its answer", ScriptedReply("an answer"), pause_s)

    @precondition(lambda self: self.house.waiting("model"))
    @rule(
        pick=PICK,
        word=st.sampled_from(
            [ScriptedReply("NO_REPLY"), ScriptedReply("ANNOUNCE_SKIP"), ScriptedReply(""), Broke("auth", "no key")]
        ),
        pause_s=PAUSE,
    )
    def says_otherwise(self, pick: int, word: ScriptedReply | Broke, pause_s: float | None) -> None:
        self._give(self._thinking(pick), f"says {word}", word, pause_s)

    @precondition(lambda self: self.house.waiting("model"))
    @rule(pick=PICK, count=st.integers(1, 2), terms=TERMS, then=THEN, pause_s=PAUSE)
    def spawns(self, pick: int, count: int, terms: dict[str, Any], then: Any, pause_s: float | None) -> None:
        self._spawn(self._thinking(pick), count, terms, then, pause_s)

    def _spawn(self, held: Held, count: int, terms: dict[str, Any], then: Any, pause_s: float | None) -> None:
        calls: list[Call] = []
        for _ in range(count):
            self._spawned += 1
            label = f"{held.label}.{self._spawned}"
            calls.append(use("sessions_spawn", task=f"the work of {label}", label=label, **terms))
        words = f"spawns {count} {terms or ''}"
        if then is not None:
            terms = {} if held.label in ("main", "other") else {"for": then}
            calls.append(use("sessions_yield", **terms))
            words += f" and waits for {terms.get('for', 'what comes')}"
        self._give(held, words, ScriptedReply("it works", tuple(calls)), pause_s)

    @precondition(lambda self: self.house.waiting("model"))
    @rule(pick=PICK, asked=ASKED, deadline_s=st.sampled_from([None, 1800, 5]), pause_s=PAUSE)
    def yields(self, pick: int, asked: Any, deadline_s: int | None, pause_s: float | None) -> None:
        """With nothing to wait for, or with terms in a conversation, it goes on."""
        held = self._thinking(pick)
        given = {"for": asked, "deadlineSeconds": deadline_s}
        terms = {name: value for name, value in given.items() if value is not None}
        self._give(held, f"yields {terms}", ScriptedReply("it waits", (use("sessions_yield", **terms),)), pause_s)

    @precondition(lambda self: self.house.waiting("model"))
    @rule(pick=PICK, name=st.sampled_from(["hand_looks", "hand_acts", "hand_asks"]), pause_s=PAUSE)
    def calls(self, pick: int, name: str, pause_s: float | None) -> None:
        held = self._thinking(pick)
        self._give(held, f"calls {name}", ScriptedReply("it works", (use(name),)), pause_s)

    @precondition(lambda self: self.house.waiting("model") and self.house.runs())
    @rule(pick=PICK, action=st.sampled_from(["steer", "kill", "approve", "reject"]), of=PICK, pause_s=PAUSE)
    def directs(self, pick: int, action: str, of: int, pause_s: float | None) -> None:
        held = self._thinking(pick)
        label = self.house.witness.label(_one(self.house.runs(), of).key)
        call = use("subagents", action=action, target=label, message=f"{action}: as I say")
        self._give(held, f"wants to {action} {label}", ScriptedReply("it directs", (call,)), pause_s)

    @precondition(lambda self: self.house.waiting("tool", "thread"))
    @rule(pick=PICK, works=st.booleans(), pause_s=PAUSE)
    def returns(self, pick: int, works: bool, pause_s: float | None) -> None:
        held = _one(self.house.waiting("tool", "thread"), pick)
        word = None if works else RuntimeError("it slipped")
        self._give(held, f"has {held.what}: {'it works' if works else 'it fails'}", word, pause_s)

    # ---- what people do

    def _say(self, key: str, source: str | None = None) -> Deciding:
        self._said += 1
        row = f"said:{self._said}"
        return partial(control.send, key=key, message=f"message {self._said}", source=source, row_key=row)

    @rule(key=st.sampled_from([MAIN, MAIN, OTHER]), pause_s=PAUSE)
    def talk(self, key: str, pause_s: float | None) -> None:
        self._commit(f"a person talks to {key}", self._say(key), pause_s)

    @precondition(lambda self: self.house.runs())
    @rule(pick=PICK, by_parent=st.booleans(), pause_s=PAUSE)
    def send(self, pick: int, by_parent: bool, pause_s: float | None) -> None:
        run = _one(self.house.runs(), pick)
        source = run.terms.parent if by_parent else None
        self._commit(f"{self._name(run)} is sent something", self._say(run.key, source), pause_s)

    @precondition(lambda self: self.house.runs())
    @rule(pick=PICK, pause_s=PAUSE)
    def steer(self, pick: int, pause_s: float | None) -> None:
        run = _one(self.house.runs(), pick)
        self._commit(f"{self._name(run)} is steered", partial(control.steer, key=run.key, message="rather"), pause_s)

    @precondition(lambda self: self.house.runs())
    @rule(
        pick=PICK,
        how=st.sampled_from(["killed", "killed", "stopped", "main"]),
        spawning_s=st.sampled_from([None, 0.0, 0.002, 0.01]),
        pause_s=PAUSE,
    )
    def kill(self, pick: int, how: str, spawning_s: float | None, pause_s: float | None) -> None:
        """Perhaps in the moment in which it spawns."""
        run = _one(self.house.runs(), pick)
        held = [held for held in self.house.waiting("model") if held.label == self.house.witness.label(run.key)]
        if held and spawning_s is not None:
            self._spawn(held[0], 1, {}, None, spawning_s)
        if how == "main":
            self._commit("/stop in main", partial(control.stop, session=MAIN), pause_s)
        else:
            end = control.kill if how == "killed" else control.stop
            self._commit(f"{self._name(run)} is {how}", lambda c: end(c, run.key), pause_s)

    @precondition(lambda self: self._killed())
    @rule(pick=PICK, pause_s=PAUSE)
    def resume(self, pick: int, pause_s: float | None) -> None:
        run, config = _one(self._killed(), pick), self.house.plan.config
        decide = partial(
            spawn.resume,
            key=run.key,
            words="go on",
            limits=limits_in(config, "main"),
            cap_of=lambda agent_id: limits_in(config, agent_id).max_children,
        )
        self._commit(f"{self._name(run)} is resumed", decide, pause_s)

    def _killed(self) -> list[Run]:
        return [run for run in self._in("completed") if run.ended and isinstance(run.ended.outcome, Killed)]

    @precondition(lambda self: self._in("awaiting_approval"))
    @rule(pick=PICK, approve=st.booleans(), pause_s=PAUSE)
    def answer_plan(self, pick: int, approve: bool, pause_s: float | None) -> None:
        run, words = _one(self._in("awaiting_approval"), pick), "approved" if approve else "rejected"
        decide = partial(control.answer_plan, key=run.key, approve=approve, words=words)
        self._commit(f"the plan of {self._name(run)} is {words}", decide, pause_s)

    @precondition(lambda self: self._questions())
    @rule(pick=PICK, allow=st.booleans(), pause_s=PAUSE)
    def answer_question(self, pick: int, allow: bool, pause_s: float | None) -> None:
        asked = _one(self._questions(), pick)
        decide = partial(steps.answer, approval_id=asked.id, allow=allow, answered_by="a person")
        self._commit(f"{asked.tool} is {'allowed' if allow else 'denied'}", decide, pause_s)

    @rule(pause_s=PAUSE)
    def program_spawns(self, pause_s: float | None) -> None:
        self._said += 1
        request = program_spawn(self.house.plan, self._said)
        self._commit(f"the program spawns {request.spec.label}", partial(spawn.spawn, request=request), pause_s)

    @precondition(lambda self: any(run.terms.program for run in self.house.runs()))
    @rule(pick=PICK)
    def program_reads(self, pick: int) -> None:
        run = _one([run for run in self.house.runs() if run.terms.program], pick)
        self._commit(f"the program reads {self._name(run)}", partial(control.read_result, key=run.key))

    @precondition(lambda self: self.house.runs())
    @rule(pick=PICK, whose=st.sampled_from(["other", "run"]))
    def delete(self, pick: int, whose: str) -> None:
        key = OTHER if whose == "other" else _one(self.house.runs(), pick).key
        self._commit(f"{key} is deleted", partial(control.delete_session, key=key))

    @precondition(lambda self: self._in("completed_giveup"))
    @rule(pick=PICK, again=st.booleans())
    def take_up_undelivered(self, pick: int, again: bool) -> None:
        run = _one(self._in("completed_giveup"), pick)
        decide = partial(control.retry if again else control.dismiss, key=run.key)
        self._commit(f"{self._name(run)} is {'told again' if again else 'put away'}", decide)

    def _in(self, phase: str) -> list[Run]:
        return [run for run in self.house.runs() if run.phase.name == phase]

    def _questions(self) -> list[Approval]:
        return self.house.look(lambda tx: tx.approvals.open())

    def _name(self, run: Run) -> str:
        return f"{self.house.witness.label(run.key)} ({run.phase.name})"

    # ---- time and faults

    @rule(seconds=st.sampled_from([1.5, 6.0, 6.0, 31.0, 31.0, 400.0]))
    def time_passes(self, seconds: float) -> None:
        self._do(f"{seconds} s pass", lambda: self.house.pass_time(seconds))

    @rule(commits=st.integers(0, 3), how=st.sampled_from(["before", "after", "closed"]))
    def kill_9(self, commits: int, how: Literal["before", "after", "closed"]) -> None:
        if how == "closed":
            self._do("the process is closed and started again", self.house.restart)
        elif commits:
            self._do(f"kill -9 {how} commit {commits} from now", lambda: self.house.doom(commits, how))
        else:
            self._do("kill -9", self.house.kill)


def _one(them: Sequence[T], pick: int) -> T:
    return them[pick % len(them)]


EngineMoves.TestCase.settings = effort(examples=100, steps=35)
TestEngineMoves = EngineMoves.TestCase
proves("0.ends.5")(TestEngineMoves)


# ---- one race, looked at closely -------------------------------------------------------------------------------------


def spawn_and_kill_at_once(spy: type[Spy]) -> None:
    """A child spawns, and is killed before, while or after that is committed: as slow as the store happens to be."""
    for slow, pause_s in product(range(1, 13), (0.0, 0.002, 0.01)):
        house = House(plan("collect", {"main": 1, "subagent": 1, "nested": 1}, 1.0, slow % 2 == 0, slow), spy)
        with closing(house):
            house.commit(partial(control.send, key=MAIN, message="go", row_key="said:1"))
            house.give(house.waiting("model")[0], ScriptedReply("", (use("sessions_spawn", task="a", label="a"),)))
            child = next(held for held in house.waiting("model") if held.label == "a")
            house.give(child, ScriptedReply("", (use("sessions_spawn", task="b", label="b"),)), pause_s)
            house.commit(partial(control.kill, key=house.runs()[0].key))
            house.settle()


def test_a_kill_in_the_moment_of_a_spawn_leaves_nobody_behind() -> None:
    spawn_and_kill_at_once(Spy)


def test_without_generations_it_would() -> None:
    with pytest.raises(AssertionError, match="was admitted below"):
        spawn_and_kill_at_once(RaisesNoGeneration)


# ---- the machine can fail --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        (LosesRows, "announcing|nowhere|its row is None"),
        (TellsTwice, "is told more than once"),
        (ForgetsToCount, r"counts \d unsettled, there are \d"),
        (KnowsNoWidths, r"lane \w+ has \d drivers"),
        (AnnouncesTwice, "no attempt's only one of its kind"),
        (TellsTheWrongOne, r"is told in .* instead of"),
        (KeepsSlots, "waits and holds a slot"),
        (SleepsOn, "sleeps though what it waits for is there"),
    ],
    ids=lambda case: case.__name__ if isinstance(case, type) else "",
)
def test_a_store_that_breaks_a_promise_is_found_out(broken: type[Spy], words: str) -> None:
    class Moves(EngineMoves):
        spy = broken

    looking = settings(TestEngineMoves.settings, phases=[Phase.generate], report_multiple_bugs=False)
    with pytest.raises(AssertionError, match=words):
        run_state_machine_as_test(Moves, settings=looking)
