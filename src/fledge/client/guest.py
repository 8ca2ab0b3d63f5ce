"""A folder that another process holds, as a program uses it: everything that `Fledge` does, by calls of verbs.

The process that carries out the verbs may change at any moment: the holder leaves, and another process takes over, or
this one does. Handles, waits and subscriptions stay valid. Methods that need the folder's rows themselves are refused.
"""

import asyncio
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, Literal, NoReturn, Self, TypeVar

from fledge.api import spawn_options, views
from fledge.api.agents import Agent
from fledge.api.carried import GivenImage
from fledge.api.conversation import Conversation
from fledge.api.fledge import Approver, EndListener, Fledge, Which, called, check_timeout_ms
from fledge.api.handle import Handle
from fledge.api.identity import Identity, agent_differences
from fledge.api.spawn_options import SpawnCall
from fledge.api.values import Forest, GivenUp, Plan, Question, Result, RunInfo, Waited
from fledge.client.asking import VerbCaller, deadline
from fledge.client.connection import WireEvent
from fledge.client.folder import Client
from fledge.client.guest_conversation import GuestConversation
from fledge.client.guest_run import GuestHandle, is_settled
from fledge.commands.people import Approved, TakenUp
from fledge.commands.runs import NextAttempt
from fledge.commands.sessions import Done
from fledge.commands.wire import WireObject
from fledge.config import Config
from fledge.core.params import as_written
from fledge.core.permission import Permission
from fledge.core.route import Address, check_address
from fledge.errors import BadInput, FledgeError, Refused
from fledge.orchestrator.engine import Engine
from fledge.orchestrator.messenger import Messenger
from fledge.orchestrator.spawn_params import NATIVE
from fledge.orchestrator.spawner import Spawner
from fledge.runtime.feed import Subscription
from fledge.runtime.profiles import ConfiguredProfiles
from fledge.store.base import Spec, Tx, Wishes

T = TypeVar("T")

ALL_RUNS = 100_000


class Guest(Fledge):
    """The same as `Fledge`, by calls of verbs. `own` has the settings and models of this process, and checks with them;
    None: this process has none."""

    def __init__(self, client: Client, program: str, own: Fledge | None = None) -> None:
        self._client, self._named, self._own = client, program, own
        self._asking = VerbCaller(client)
        self._background = self._asking.background
        self._holder: Identity | None = None

    def _standing(self) -> str:
        if self._holder is None:
            return "not open yet"
        return "held by another process" if self._client.is_held else "open"

    async def __aenter__(self) -> Self:
        """Follow the events of the folder, whichever process holds it, and read the holder's identity."""
        if self._holder is not None:
            raise Refused("error", "this fledge is open already: call fledge.open again for another")
        try:
            await self._asking.start()
            self._holder = await self._asking.call(Identity, "identity")
        except BaseException:
            await self._asking.close()
            raise
        return self

    async def __aexit__(self, *error: object) -> None:
        """Make no more calls. If this process holds the folder by now, release it."""
        await self._asking.close()

    # ---- the folder

    @property
    def state(self) -> Path:
        """The state folder; without `own`, by the path that its holder has for it."""
        if self._own is not None:
            return self._own.state
        return Path("" if self._holder is None else self._holder.state)

    @property
    def config(self) -> Config:
        """The settings of this process. Refused without `own`."""
        return (self._own or self._refuse("config")).config

    @property
    def program(self) -> str:
        """The session key of this program: the requester of the runs it spawns."""
        return self._named

    @property
    def drives(self) -> bool:
        """True: unfinished runs continue in the process that holds the folder."""
        return True

    @property
    def identity(self) -> Identity:
        """The identity that this process would have as the holder. Refused without `own`."""
        return (self._own or self._refuse("identity")).identity

    @property
    def is_holder(self) -> bool:
        """True if this process holds the folder by now."""
        return not self._client.is_held

    def check(self, agent_id: str = "main", spec: Spec | None = None) -> None:
        """Raises `BadInput` or `Refused` if this agent could not work with the settings of this process. Refused
        without `own`."""
        (self._own or self._refuse("check")).check(agent_id, spec)

    def check_model(self, name: str, thinking: str | None = None) -> None:
        """Raises `BadInput` for a model that this process cannot use. Refused without `own`."""
        (self._own or self._refuse("check_model")).check_model(name, thinking)

    def _refuse(self, name: str) -> NoReturn:
        raise Refused(
            "error", f"`{name}` works only in the process that holds the folder; this process is connected to it"
        )

    @property
    def engine(self) -> Engine:
        """Refused."""
        self._refuse("engine")

    @property
    def profiles(self) -> ConfiguredProfiles:
        """Refused."""
        self._refuse("profiles")

    @property
    def spawner(self) -> Spawner:
        """Refused."""
        self._refuse("spawner")

    @property
    def messenger(self) -> Messenger:
        """Refused."""
        self._refuse("messenger")

    def keeping_images(self, images: Sequence[GivenImage]) -> NoReturn:
        """Refused."""
        self._refuse("keeping_images")

    async def until(self, look: Callable[[Tx], T | None], *, timeout: float | None = None) -> NoReturn:
        """Refused."""
        self._refuse("until")

    def watch(self, moved: asyncio.Event) -> NoReturn:
        """Refused."""
        self._refuse("watch")

    def unwatch(self, moved: asyncio.Event) -> None:
        """Does nothing: no event can be watched here."""

    # ---- runs

    async def _spawn(self, asked: SpawnCall) -> tuple[str, str, str]:
        """The session key, the run id and the label of the run. The request gets an idempotency key, so that the run is
        started once even if the holder changes."""
        params = asked.params
        if asked.functions:
            raise BadInput("tools", "must be names here: functions run in the process that holds the folder")
        program = self._named.rpartition(":")[2]
        try:
            if self._own is not None and not params.model and params.runtime == NATIVE:
                self._own.check(params.agent_id or "main")
            told: WireObject = await self._asking.call(
                WireObject, "runs.spawn", program=program, **spawn_options.on_wire(params)
            )
        except FledgeError as error:
            raise as_written(error, asked.written) from None
        return told["childSessionKey"], told["runId"], params.label.strip()

    def _check_agent(self, value: Agent[Any] | None) -> None:
        """Raises BadInput for an agent value that the holder of the folder does not have, or has with other fields."""
        if value is None:
            return
        if self._own is not None:
            self._own._check_agent(value)  # both have the same agents, or this process would not be a guest
            return
        assert self._holder is not None
        found = agent_differences(value, self._holder)
        if found:
            raise BadInput("agent", f"must be the same where the folder is held: {'; '.join(found)}", value.name)

    def _handle(self, key: str, run_id: str, output_type: Any = None, label: str = "") -> Handle[Any]:
        return GuestHandle(self._asking, key, run_id, output_type, label)

    async def again(self, which: Which, *, idempotency_key: str = "") -> Handle[Any]:
        """Start a new run with the task and the options of an earlier one, however that one ended."""
        told: WireObject = await self._asking.call(
            WireObject, "runs.again", target=_target(which), idempotencyKey=idempotency_key
        )
        kind, label = (which.output_type, which.label) if isinstance(which, Handle) else (None, "")
        return self._handle(told["childSessionKey"], told["runId"], kind, label)

    async def _found(self, run_id: str) -> tuple[str, str]:
        found = await self._asking.call(Result[Any], "runs.result", run=run_id, peek=True)
        return found.session_key, found.label

    def _deadline(self, timeout: float | None) -> float | None:
        return deadline(timeout)

    async def _gathered(self, handles: Sequence[Handle[Any]], enough: int, at: float | None) -> list[Result[Any]]:
        settled: set[str] = set()

        async def met() -> bool | None:
            for handle in handles:
                if handle.session_key not in settled and is_settled(await handle.info()):
                    settled.add(handle.session_key)
            return sum(handle.session_key in settled for handle in handles) >= enough or None

        await self._asking.until(None, met, at)
        return [await handle.result(timeout=0) for handle in handles]

    async def runs(self, *, requester: str | None = None, status: str | None = None) -> list[RunInfo]:
        """The runs of a requester (this program, if none is named), oldest first."""
        whose = self._named if requester is None else requester
        found = await self._asking.call(list[RunInfo], "runs.list", requester=whose, status=status or "")
        shown = [views.with_kills_as(run, "killed") for run in found]
        # On the wire the status `error` finds killed runs, too.
        return [run for run in shown if status != "error" or run.status == "error"]

    async def tree(self, root: str | None = None) -> list[RunInfo]:
        """The runs below a session, each with its children; without a name, below all sessions."""
        found = await self._asking.call(Forest, "runs.tree", requester=root or "", limit=ALL_RUNS)
        return [views.with_kills_as(run, "killed") for run in found.runs]

    def on_end(self, told: EndListener) -> None:
        """Call this function with a handle for each run in the folder that ends from now on; it may be async."""
        if not callable(told):
            raise BadInput("told", "must be a function that takes a handle", told)
        heard: set[tuple[str, str]] = set()

        def ended(event: WireEvent) -> None:
            if event["type"] == "run" and event["endedReason"] is not None:
                run = (event["sessionKey"], event["runId"])
                if run not in heard:
                    heard.add(run)
                    self._background.start(called(told, GuestHandle(self._asking, *run)))

        self._asking.on_event(ended)

    # ---- conversations

    def _conversation(self, key: str, address: Address | None) -> Conversation:
        return GuestConversation(self._asking, key, None if address is None else check_address(address))

    def _check_wishes(self, wishes: Wishes, session: str) -> None:
        """Does nothing: the holder of the folder checks them."""

    async def agent_wait(self, run_id: str, timeout_ms: float = 30_000) -> Waited:
        """Wait for the turn that `agent` started, or for any run: how it ended, or `pending` after `timeout_ms`."""
        check_timeout_ms(timeout_ms)

        async def look(wait_ms: int) -> Waited | None:
            found = await self._asking.call(Waited, "agent.wait", run=run_id, timeoutMs=wait_ms)
            return found if found.status != "pending" else None

        waited = await self._asking.in_slices(look, deadline(timeout_ms / 1000))
        return await self._asking.call(Waited, "agent.wait", run=run_id, timeoutMs=0) if waited is None else waited

    def listen(self, size: int = 1000, poke: Callable[[], None] | None = None, *, session: str = "") -> Subscription:
        """Subscribe to the events inside turns, beginning with the text so far of open replies. When the holder leaves,
        a `lost` event stands for the events that are missed."""
        return self._asking.listen(size, poke, session, so_far="")

    # ---- what waits for a person

    async def approvals(self, *, decided: bool = False) -> list[Question]:
        """The tool calls that wait for a person, oldest first; with `decided`, the newest that no longer wait."""
        return await self._asking.call(list[Question], "approvals.list", decided=decided)

    def on_approval(self, answer: Approver) -> None:
        """Let this function answer the tool calls that wait for a person; it may be async."""
        super().on_approval(answer)
        self._asking.asks = True

    async def _not_asked(self, asked: Collection[str]) -> list[Question] | None:
        async def new() -> list[Question] | None:
            return [one for one in await self.approvals() if one.id not in asked] or None

        return await self._asking.until(None, new)

    async def approve(
        self,
        question_id: str,
        *,
        by: str = "program",
        digest: str | None = None,
        always: bool = False,
        children: bool = False,
    ) -> Permission | None:
        """Allow a tool call. With `digest`, only if it is still the call that was shown; with `always`, also store a
        rule that allows such commands from now on."""
        shown = digest or await self._digest(question_id)
        done = await self._asking.call(
            Approved, "approvals.approve", id=question_id, digest=shown, by=by, always=always, children=children
        )
        return done.permission or None

    async def deny(self, question_id: str, *, by: str = "program", digest: str | None = None, words: str = "") -> None:
        """Deny a tool call. The model reads `words` as the person's reason."""
        shown = digest or await self._digest(question_id)
        await self._asking.call(Done, "approvals.deny", id=question_id, digest=shown, by=by, words=words)

    async def _digest(self, question_id: str) -> str:
        return next((one.digest for one in await self.approvals() if one.id == question_id), "-")

    async def permissions(self) -> list[Permission]:
        """The rules by which commands run without asking, oldest first."""
        return await self._asking.call(list[Permission], "permissions.list")

    async def revoke_permission(self, rule_id: str) -> Permission:
        """Remove a rule, by the beginning of its id."""
        return await self._asking.call(Permission, "permissions.revoke", id=rule_id)

    async def plans(self) -> list[Plan]:
        """The plans that wait for approval, oldest first."""
        return await self._asking.call(list[Plan], "plans.list")

    async def _answer_plan(self, which: Which, approve: bool, words: str) -> str:
        verb = "plans.approve" if approve else "plans.reject"
        given: WireObject = {"words": words} if approve else {"reason": words}
        return (await self._asking.call(NextAttempt, verb, target=_target(which), **given)).run_id

    async def undelivered(self) -> list[GivenUp]:
        """Undelivered results and messages, each kind oldest first."""
        return await self._asking.call(list[GivenUp], "undelivered.list")

    async def _take_up(self, action: Literal["retry", "dismiss"], which: Which) -> None:
        await self._asking.call(TakenUp, f"undelivered.{action}", target=_target(which))


def _target(which: Which) -> str:
    return which.session_key if isinstance(which, Handle) else which
