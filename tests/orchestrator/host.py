"""A host for tests of spawning: it knows one model, and offers what the test says it does."""

from pathlib import Path

from fledge.core.run import Run
from fledge.errors import BadInput, Refused
from fledge.orchestrator.engine import Engine
from fledge.orchestrator.spawn import SpawnRequest
from fledge.orchestrator.spawn_params import Caller
from fledge.store.base import Session

MODEL = "openai/gpt-5"
PLAIN = "openai/plain"
"""A model that does not think."""


class FakeHost:
    """One machine, as a spawn sees it."""

    def __init__(
        self,
        has_sandbox: bool = False,
        runtimes: tuple[str, ...] = (),
        channel: bool = False,
        state: Path | None = Path("/state"),
        boxes_all: bool = False,
    ) -> None:
        self._boxes_all = boxes_all
        self._has_sandbox, self._runtimes, self._channel = has_sandbox, runtimes, channel
        self._state = state
        self.bound: list[str] = []
        self.made: list[SpawnRequest] = []
        self.cannot_make = ""

    @property
    def has_sandbox(self) -> bool:
        return self._has_sandbox

    def person_in(self, engine: Engine, session: Session, run: Run | None) -> Caller:
        return Caller(session=session.key, boxed=session.facts.boxed or self._boxes_all)

    @property
    def runtimes(self) -> tuple[str, ...]:
        return self._runtimes

    @property
    def tool_names(self) -> frozenset[str]:
        return frozenset({"exec", "grep", "read", "write"})

    @property
    def program_runtimes(self) -> frozenset[str]:
        return frozenset()

    def check_model(self, name: str, thinking: str | None) -> None:
        if name not in (MODEL, PLAIN):
            raise BadInput("model", "no such model", name)
        if name == PLAIN and thinking not in (None, "off"):
            raise BadInput("thinking", f"must be off: {name} has no other level", thinking)

    def functions_of(self, agent_id: str) -> frozenset[str] | None:
        return None

    async def bind_thread(self, engine: Engine, run: Run) -> None:
        if not self._channel:
            raise Refused("error", "thread: no channel here can bind a thread")
        self.bound.append(run.key)

    def check_folder(self, agent_id: str, project: str) -> None:
        """Every folder will do."""

    def workspace_of(self, agent_id: str, given: str, project: str = "") -> Path:
        return Path(given or project or f"/workspace/{agent_id}")

    def own_folder(self, leaf: str, workspace: Path) -> Path:
        if self._state is None:
            raise Refused("error", "nothing can be made here")
        return self._state / leaf

    async def make(self, request: SpawnRequest) -> None:
        if self.cannot_make:
            raise OSError(self.cannot_make)
        self.made.append(request)
