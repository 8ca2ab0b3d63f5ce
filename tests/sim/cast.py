"""How simulated sessions think, and what their children may be given: profiles for the agent, a host for the spawner.

The tools that concern sessions are the real ones; the model and the other tools are `mind` and `hands`.
"""

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path

from msgspec.structs import replace

from fledge.core.access import Role, ToolRules, child_tools, planning_tools
from fledge.core.handover import Handover
from fledge.core.progress import StepLimits
from fledge.core.route import Address
from fledge.core.run import Run
from fledge.errors import Refused
from fledge.models.base import Model
from fledge.models.retry import Retrying
from fledge.orchestrator import bindings, outbox
from fledge.orchestrator.commit import Rules
from fledge.orchestrator.engine import Engine
from fledge.orchestrator.messenger import Messenger
from fledge.orchestrator.spawn import SpawnRequest
from fledge.orchestrator.spawn_params import Caller
from fledge.orchestrator.spawner import Spawner
from fledge.orchestrator.turns import Drive
from fledge.runtime.base import Runtime
from fledge.runtime.profile import Profile
from fledge.store.base import OutboxPost, Session, Spec
from fledge.store.entry_files import EntryFiles
from fledge.tools.base import Tool
from fledge.tools.registry import ToolSet
from fledge.tools.send import send_tool
from fledge.tools.sessions import spawn_tool, yield_tool
from fledge.tools.subagents import subagents_tool
from tests.sim.hands import ASKS, command, hands
from tests.sim.mind import Mind, Who
from tests.sim.schedule import dice
from tests.sim.witness import Witness


class Cast:
    """One process's sessions."""

    def __init__(self, witness: Witness) -> None:
        self._witness, self._plan = witness, witness.plan
        self._every: ToolSet | None = None
        self._outlet = witness.outside.outlet()
        self._runtimes = witness.workers.runtimes()

    def rules(self, settled: Rules) -> Rules:
        """These, with who listens here."""
        return replace(settled, hooks=self._outlet.listeners)

    # ---- how sessions think

    async def profile(self, engine: Engine, drive: Drive) -> Profile:
        """A mind for the session, with the tools its role allows."""
        plan, session = self._plan, drive.session
        budgeted = await engine.store.read(
            lambda tx: any(tx.budgets.get(above.key) for above in tx.sessions.lineage(session))
        )
        tools = await self._tools(engine, drive)
        who = Who(
            session=session,
            epoch=drive.epoch,
            label=self._witness.label(session),
            talks=drive.run is None,
            spawns="sessions_spawn" in tools.names and len(self._witness.ledger.admitted) < plan.runs,
            tools=tuple(sorted(tools.names)),
            # Only where that ends soon: else it would fill the play.
            spins=plan.steps != StepLimits() and dice(plan.seed, "spin", self._witness.label(session)).random() < 0.1,
        )
        return Profile(
            model=self._mind(who),
            model_name="simulated",
            system=who.label,
            tools=tools,
            workspace=Path("/nowhere"),
            images=EntryFiles(Path("/nowhere")),
            window=plan.window,
            max_tokens=200,
            asks=ASKS,
            approval_s=plan.approval_s,
            step_limits=plan.steps,
            is_budgeted=budgeted,
        )

    def _mind(self, who: Who) -> Model | Retrying:
        plan = self._plan
        mind = Mind(self._witness, who, plan.lingering)
        if not plan.retries:
            return mind
        return Retrying(mind, chance=dice(plan.seed, "retry", who.label, who.epoch).random)

    def _hands(self) -> list[Tool]:
        return hands(self._witness, self._plan.lingering)

    async def _tools(self, engine: Engine, drive: Drive) -> ToolSet:
        beyond = self._plan.beyond
        if self._every is None:
            ours = [spawn_tool(Spawner(engine, self._plan.config, self)), yield_tool(), subagents_tool(engine)]
            ours += [send_tool(Messenger(engine, self._plan.config))] if beyond.chatty else []
            ours += [command()] if beyond.runtimes else []
            self._every = ToolSet([*self._hands(), *ours])
        every = self._every
        session = await engine.store.read(lambda tx: tx.sessions.get(drive.session))
        assert session is not None
        facts = session.facts
        names = every.names if facts.tools is None else every.names & frozenset(facts.tools)
        if session.kind == "subagent":
            role: Role = "orchestrator" if facts.role == "orchestrator" else "leaf"
            names = child_tools(names, role, ToolRules(also_allow=("sessions_send",) if beyond.children_send else ()))
        if drive.run is not None and drive.run.plan == "planning":
            names = planning_tools(names, every.read_only)
        return every.only(names)

    async def remove(self, leaves: tuple[str, ...]) -> None:
        raise AssertionError(leaves)

    async def call(self, post: OutboxPost) -> Address | None:
        """To whoever is outside."""
        return await self._outlet.call(post)

    # ---- children of other runtimes

    def runtime(self, name: str) -> Runtime | None:
        return self._runtimes.get(name)

    def check_needs(self, spec: Spec) -> None:
        """Nothing is missing: every runtime here is in the settings."""

    def work_place(self, session: Session) -> tuple[Path, Mapping[str, str]]:
        return Path("/nowhere"), {}

    def handover(self, session: Session, run: Run | None) -> Callable[[bool], Handover] | None:
        return None

    # ---- what children may be given

    @property
    def model(self) -> str | None:
        return None

    @property
    def has_sandbox(self) -> bool:
        return False

    def person_in(self, engine: Engine, session: Session, run: Run | None) -> Caller:
        return Caller(session=session.key)

    program_runtimes: frozenset[str] = frozenset()
    tool_names: frozenset[str] = frozenset()

    @property
    def runtimes(self) -> tuple[str, ...]:
        return self._witness.workers.names

    def check_folder(self, agent_id: str, project: str) -> None:
        """Every folder will do."""

    def workspace_of(self, agent_id: str, given: str, project: str = "") -> Path:
        return Path(given or "/nowhere")

    def own_folder(self, leaf: str, workspace: Path) -> Path:
        raise Refused("error", "nothing can be made here")

    async def make(self, request: SpawnRequest) -> None:
        raise AssertionError(request)

    def check_model(self, name: str, thinking: str | None) -> None:
        """Every name will do."""

    def functions_of(self, agent_id: str) -> frozenset[str] | None:
        return None

    async def bind_thread(self, engine: Engine, run: Run) -> None:
        """By whoever listens, if somebody does. Else it takes a while, and does not always work: a child that has to be
        prepared. A program has no channel."""
        label = self._witness.label(run.key)
        if self._plan.beyond.listens:
            asked = await engine.store.read(lambda tx: outbox.spawning_event(tx, run))
            address = await self._outlet.bind(asked)
            await engine.commit(lambda c: bindings.bind(c, run.key, address, asked.to))
            return
        if label.startswith("p"):
            raise Refused("error", "thread: no channel here can bind a thread")
        throw = dice(self._plan.seed, "thread", label)
        await asyncio.sleep(throw.choice([0.0, 0.5, 3.0, 40.0]))
        if throw.random() < 0.2:
            raise Refused("error", "thread: the channel would not")
