"""Profiles from the configuration: model, prompt, tools, workspace and approvals of each turn.

A profile is made anew for each turn, so a changed document takes effect with the next turn. Prices come from the model
catalogue.
"""

import asyncio
import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache, partial
from pathlib import Path

import msgspec
from msgspec.structs import replace

from fledge.channels.base import Channel
from fledge.config import (
    Chosen,
    Config,
    agent,
    heartbeat_settings,
    lane_for,
    max_tokens_for,
    model_for_child,
    model_for_conversation,
    queue_settings,
    step_limits,
    subagent_limits,
)
from fledge.config.permissions import read_rules
from fledge.config.places import user_folder
from fledge.config.workspaces import accepted, needs_yes
from fledge.context_engine import ContextEngine, named_context_engine
from fledge.core.attachments import AttachmentLimits
from fledge.core.handover import HandoverLook
from fledge.core.keys import AGENT_ID
from fledge.core.permission import Asker, Offer, Permission, covering, offer
from fledge.core.prompts import (
    Brief,
    child_prompt,
    cut_document,
    document_names,
    task_head,
)
from fledge.core.protected import Protected, is_broad, protected_at
from fledge.core.redact import error_words
from fledge.core.route import Address
from fledge.core.run import Run
from fledge.egress import Environment
from fledge.errors import BadInput, NeedsProgram, Refused
from fledge.hooks import Hooks
from fledge.models.base import LEVELS, Thinking, Usage
from fledge.models.catalog import Card, Catalog
from fledge.models.names import Registry
from fledge.orchestrator import bindings, outbox, transcripts
from fledge.orchestrator.commit import Rules
from fledge.orchestrator.engine import Changes, Engine
from fledge.orchestrator.messenger import Messenger
from fledge.orchestrator.spawn import SpawnRequest
from fledge.orchestrator.spawn_params import NATIVE, Caller, attachment_limits
from fledge.orchestrator.spawner import Spawner
from fledge.orchestrator.transcripts import SWEEP_IMAGES
from fledge.orchestrator.turns import Drive, TurnSnapshot
from fledge.orchestrator.views import children_shown
from fledge.own_code import code_places, holds_code, keep_out
from fledge.runtime.base import Runtime
from fledge.runtime.child_files import ChildFiles
from fledge.runtime.command import CommandRuntime
from fledge.runtime.model_settings import configured_catalog, configured_registry, key_files, key_variables
from fledge.runtime.outlet import Outlet, channels_of, hooks_of
from fledge.runtime.profile import Profile
from fledge.runtime.tool_choice import POSITIONS, Box, ToolChoice, position_of
from fledge.store.base import OutboxPost, Session, Spec, Store, Wishes
from fledge.store.entry_files import EntryFiles
from fledge.tools import set_aside
from fledge.tools.base import Tool
from fledge.tools.files import file_tools
from fledge.tools.observe import observing_tools
from fledge.tools.registry import ToolSet
from fledge.tools.search import configured_search, hosted_search_tool, is_search, search_tool
from fledge.tools.send import send_tool
from fledge.tools.sessions import remove_tool, spawn_tool, yield_tool
from fledge.tools.shell import environment
from fledge.tools.subagents import subagents_tool
from fledge.tools.web import Fetcher, fetch_tool
from fledge.workspaces.documents import BareFolders, read_documents

log = logging.getLogger("fledge.profiles")

MAIN_PROMPT = (
    "You are a capable assistant. You work in the folder {workspace} with the tools you are given; use them rather than"
    " guess, and say plainly what you did and what you could not do."
)
CHECKLIST = "HEARTBEAT.md"
"""The document of a workspace that lists the duties of heartbeats."""
USUAL_TOKENS = 8192
"""The default limit of a reply, in tokens."""


def rules_of(config: Config) -> Rules:
    """The settings that commits need."""
    defaults, queue = config.agents.defaults, config.messages.queue
    channels = {name.strip().lower() for name in (*queue.by_channel, *queue.debounce_ms_by_channel)}
    return Rules(
        queue=queue_settings(config),
        queues={name: queue_settings(config, name) for name in channels},
        heartbeat=heartbeat_settings(config),
        style=config.announce.style,
        inline_chars=config.announce.inline_chars,
        delete_kept=config.archive.delete_kept,
        deliver=config.announce.deliver,
        max_retries=config.announce.max_retries,
        undelivered_s=config.undelivered.retention_days * 86400.0,
        exchanges_s=config.retention.timeline_days * 86400.0,
        patience_s=config.models.patience_seconds,
        binds=config.session.thread_bindings.enabled,
        binding_idle_s=config.session.thread_bindings.idle_hours * 3600.0,
        binding_max_age_s=config.session.thread_bindings.max_age_hours * 3600.0,
        widths={
            "main": defaults.max_concurrent,
            "subagent": defaults.subagents.max_concurrent,
            "nested": 1,
            **{lane_for(config, one.id): subagent_limits(config, one.id).max_concurrent for one in config.agents.list},
        },
    )


NO_MODEL = (
    "no model is set: give --model NAME, such as openai/gpt-5, anthropic/claude-sonnet-4-5 or ollama/llama3.2,"
    " or set agents.defaults.model (fledge init)"
)

NO_WORKSPACE = (
    "{} holds packages that fledge itself runs from, so it cannot be a workspace: choose the folder above, or install"
    " fledge elsewhere (pipx install fledge)"
)


class ConfiguredProfiles:
    """Makes the profiles of all sessions. Close it when done: it holds the connections to models."""

    def __init__(
        self,
        config: Config,
        *,
        workspace: Path,
        is_named: bool = True,
        state: Path,
        registry: Registry | None = None,
        catalog: Catalog | None = None,
        tools: Sequence[Tool] = (),
        runtimes: Mapping[str, Runtime] | None = None,
        env: Environment | None = None,
        channels: Mapping[str, Channel] | None = None,
        hooks: Hooks | None = None,
        context_engine: ContextEngine | None = None,
        given_agents: Mapping[str, Iterable[Tool]] | None = None,
    ) -> None:
        """`given_agents`: agents that a program passed as values, each with its functions."""
        self._config, self._workspace = config, workspace
        self._catalog = catalog or configured_catalog(config)
        self._registry = registry or configured_registry(config, env, self._catalog)
        given = os.environ if env is None else env
        webhooks = (*config.channels.values(), *config.hooks.values())
        secrets = {*(one.secret_env for one in webhooks), *key_variables(config)}
        public = {name: value for name, value in given.items() if name not in secrets}
        self._env, self._command_env = environment(public), environment(public, config.tools.exec.env)
        self._runtimes = {**configured_runtimes(config, given), **(runtimes or {})}
        self.program_runtimes: frozenset[str] = frozenset(runtimes or ())
        """Names of the runtimes that a program passed; the others come from the settings."""
        for name in self._runtimes:
            check_runtime_name(name)
        home = os.path.realpath(given.get("HOME") or Path.home()).rstrip("/")
        files = [value for name, value in given.items() if name.endswith("_KEY_FILE")]
        files += [*(one.secret_file for one in webhooks if one.secret_file), *key_files(config)]
        files += [str(state.absolute()), str(user_folder(given).absolute())]
        folders = [config.agents.defaults.workspace, *(one.workspace for one in config.agents.list)]
        named_ones = [str(workspace), *filter(None, folders)]
        expanded = [tuple(os.path.abspath(os.path.expanduser(path)) for path in paths) for paths in (files, named_ones)]
        keep_out((*expanded[1], str(state.absolute())))
        self.protected: Protected = protected_at(home, expanded[0], config.tools.unguarded, expanded[1], *code_places())
        self._named = {os.path.realpath(workspace)} if is_named else set()
        """The workspace, if a program passed it: it needs no confirmation then, even if it contains the home folder."""
        self.user = user_folder(given)
        """The folder with the user's settings and permission rules."""
        self._files = ChildFiles(state, self.protected)
        self.remove, self.own_folder = self._files.remove, self._files.places.own_folder
        self.images = EntryFiles(state)
        self._aside = state.absolute() / set_aside.FOLDER
        self._store: Store | None = None
        listening = {**hooks_of(config, given), **({} if hooks is None else hooks.listening())}
        # Imported after `keep_out`: the command takes no module from a workspace.
        if context_engine is None:
            context_engine = named_context_engine(config.plugins.slots.context_engine)
        self._outlet = Outlet({**channels_of(config, given), **(channels or {})}, listening, context_engine)
        search = configured_search(config.tools.web.search, given, self._registry.ca_file)
        searching = [] if search is None else [search_tool(search)]
        if search is None and config.tools.web.search.enabled and not any(is_search(one) for one in tools):
            searching = [hosted_search_tool()]
        usual = (*file_tools(), fetch_tool(Fetcher(env=given)), *searching)
        self.tool_choice = ToolChoice(config, usual, tools, given_agents or {}, self._aside)
        self.functions_of = self.tool_choice.functions_of
        self._tools_of: Engine | None = None
        """The engine for which the session tools were made."""
        self._found_workspace = lru_cache(POSITIONS)(self._find_workspace)
        self._settings_for = lru_cache(POSITIONS)(self._find_settings)
        self._bare = BareFolders()
        self._looked_at: dict[Path, tuple[str, bool]] = {}
        """Cache of `_look_at_place`, for one iteration of the event loop."""

    # ---- functions and runtimes of a program

    def check_needs(self, spec: Spec) -> None:
        """Raise `NeedsProgram` if the run needs a function or runtime of a program that this process does not have."""
        missing = self._missing(spec)
        if missing:
            options = "runtimes={…}" if spec.runtime != NATIVE else "agents=[…], tools=[…]"
            raise NeedsProgram(
                f"it waits for its program, which has the {' and the '.join(missing)}: open the folder with"
                f" fledge.open({options}) again, or kill it"
            )

    async def models(self) -> dict[str, tuple[str, Card | None]]:
        """The models that can be used now, each with the reason and its card: first those of the settings, then those
        of usable services."""
        config, reasons = self._config, dict[str, str]()
        for agent_id in dict.fromkeys(("main", *(one.id for one in config.agents.list))):
            chosen = model_for_conversation(config, agent_id)
            for name in () if chosen is None else (chosen.name, *chosen.fallbacks):
                reasons.setdefault(name, f"the model of {agent_id}")
        if config.agents.defaults.heartbeat.model:
            reasons.setdefault(config.agents.defaults.heartbeat.model, "the model of heartbeats")
        for service in await self._registry.service_models(config.models.providers):
            for name in service.models if service.reason else ():
                reasons.setdefault(name, service.reason)
        return {name: (reason, self._catalog.find(name)) for name, reason in reasons.items()}

    def brings(self, spec: Spec) -> bool:
        """True if this process has all functions and runtimes that the run needs."""
        return not self._missing(spec)

    def _missing(self, spec: Spec) -> list[str]:
        agents = {f"agent:{one.id}" for one in self._config.agents.list}
        tools = {f"tool:{name}" for name in self.tool_choice.functions}
        runtimes = {f"runtime:{name}" for name in self._runtimes}
        return [need.replace(":", " ") for need in spec.needs if need not in agents | tools | runtimes]

    def check(self, agent_id: str = "main", spec: Spec | None = None) -> None:
        """Raise if the agent's conversation (with `spec`: such a child) cannot run: no model is set, its name is wrong,
        its key is unusable, or its workspace needs a person's confirmation."""
        self.check_folder(agent_id, "")
        choice, _ = self._choice(agent_id, spec)
        self._registry.choose(choice.name, choice.fallbacks)
        if not choice.fallbacks:
            self._registry.check_key(choice.name)

    def check_folder(self, agent_id: str, project: str) -> None:
        """Raise `Refused` if a conversation that begins in this project folder would work in a folder that needs a
        person's confirmation."""
        self._check_place(_real(self.workspace_of(agent_id, "", project)))

    async def profile(self, engine: Engine, drive: Drive) -> Profile:
        """The profile of this turn. Raises `Refused` if no model is set, or its name or key is wrong."""
        self._use_engine(engine)
        snapshot = drive.snapshot
        session, spec = snapshot.session, snapshot.spec
        facts, agent_id = session.facts, session.facts.agent_id
        wishes = snapshot.wishes
        of_heartbeats = self._config.agents.defaults.heartbeat.model
        if of_heartbeats and drive.heartbeat and snapshot.run is None:
            wishes = (Wishes(model=of_heartbeats), *wishes)
        if facts.model or facts.thinking:  # a person has set these for all turns
            wishes = (Wishes(model=facts.model, thinking=facts.thinking), *wishes)
        choice, thinking = self._choice(agent_id, spec, wishes)
        try:
            model, model_name = self._registry.choose(choice.name, choice.fallbacks)
        except BadInput as error:
            raise Refused("error", str(error)) from error
        workspace = self._folder(session)
        place, is_bare = self._look_at_place(workspace)
        self._check_place(place)
        box = self.tool_choice.box(session)
        searches = self._catalog.card(choice.name).search
        held = self.tool_choice.tools_in(position_of(session, snapshot.run, box, searches, spec))
        makes_files = bool(held.making)
        brief = None if spec is None or snapshot.run is None else self._brief(session, snapshot.run, spec, makes_files)
        parts = [self._system(session, spec, brief, workspace)]
        if not is_bare:
            documents = await self._documents(engine, session, snapshot.run, place)
            parts += [] if spec is not None and spec.light_context else documents
        checklist: str | None = None
        if drive.heartbeat and snapshot.run is None:
            for name, found in read_documents(workspace, [CHECKLIST]).items():
                checklist = found.text
                parts.append(_document(name, found.text))
        if snapshot.has_children or snapshot.wishes:
            parts += await self._besides(engine, snapshot)
        begins = _real(workspace / facts.cwd) if facts.cwd else place
        return replace(
            self._settings_for(agent_id, choice.name, thinking, box),
            model=model,
            model_name=model_name,
            system="\n\n".join(parts),
            task_head="" if brief is None else task_head(brief),
            checklist=checklist,
            tools=held.tools,
            workspace=workspace,
            cwd=facts.cwd,
            readable=await self._files.readable(engine, snapshot),
            handover=self._files.handover(session, drive.run, workspace) if makes_files else None,
            asks=held.asks,
            rule_for=partial(self._rule_for, Asker(begins, agent_id, session.kind not in ("main", "named"))),
            compacts=bool(wishes) and any(wish.compact for wish in wishes),
            unasked=held.unasked,
            is_budgeted=snapshot.is_budgeted,
            sees=self._registry.takes_images(choice.name) or any(map(self._registry.takes_images, choice.fallbacks)),
            place=place,
            works_in=_works_in(place, held.making, box),
            accepts=snapshot.run is None and snapshot.by_person,
        )

    def _find_settings(self, agent_id: str, name: str, thinking: Thinking, box: Box) -> Profile:
        """A profile with the values that agent, model, thinking level and sandbox decide: they do not change while a
        folder is open. Each turn sets the others."""
        config, known = self._config, self._catalog.find(name)
        card = known or Card()
        model, model_name = self._registry.choose(name, ())
        return Profile(
            model=model,
            model_name=model_name,
            system="",
            tools=ToolSet(),
            workspace=self._workspace,
            thinking=thinking if card.thinks or known is None else "off",
            max_tokens=self._max_tokens(agent_id, known),
            most_tokens=0 if known is None else known.max_output,
            window=card.window,
            step_limits=step_limits(config),
            approval_s=config.plan.approval_hours * 3600.0,
            boxed=box != "plain",
            offline=box == "none",
            images=self.images,
            protected=self.protected,
            env=self._command_env,
            cost_usd=partial(self._cost, name),
        )

    @property
    def attachment_limits(self) -> AttachmentLimits:
        """Limits of a message's attached files: those of a spawn."""
        return attachment_limits(self._config)

    def _look_at_place(self, workspace: Path) -> tuple[str, bool]:
        """The real path of the workspace, and whether it has no documents.

        Read once for all turns that begin in the same iteration of the event loop: each system call yields the
        interpreter lock to the store's thread and has to get it back.
        """
        found = self._looked_at.get(workspace)
        if found is None:
            if not self._looked_at:
                asyncio.get_running_loop().call_soon(self._looked_at.clear)
            place = _real(workspace)
            found = self._looked_at[workspace] = (place, self._bare.has_none(place))
        return found

    def _use_engine(self, engine: Engine) -> None:
        """Make the session tools of this engine, unless they are its own already."""
        if self._tools_of is engine:
            return
        self._tools_of = engine
        changes = Changes(engine)
        ours = (
            spawn_tool(self.spawner(engine)),
            yield_tool(),
            remove_tool(engine),
            subagents_tool(engine, changes),
            send_tool(Messenger(engine, self._config, changes)),
            *observing_tools(engine, self._config, self._window, self.check_model),
        )
        self.tool_choice.use_session_tools(ours)

    def _max_tokens(self, agent_id: str, card: Card | None) -> int:
        """The limit of a reply, in tokens. For a model without a card only the settings can raise it."""
        asked = max_tokens_for(self._config, agent_id)
        if card is None:
            return asked or Card().max_output
        return min(asked or USUAL_TOKENS, card.max_output)

    def _window(self, model: str) -> int | None:
        known = self._catalog.find(model)
        return None if known is None else known.window

    # ---- for the spawner

    def spawner(self, engine: Engine) -> Spawner:
        """The spawner of this engine, under this configuration."""
        self._use_engine(engine)
        return Spawner(engine, self._config, self)

    @property
    def tool_names(self) -> frozenset[str]:
        """Names of all tools of this process, whatever agents may use."""
        return self.tool_choice.tools_with("plain").names

    @property
    def has_sandbox(self) -> bool:
        """True if bubblewrap works here."""
        return self.tool_choice.has_sandbox

    def person_in(self, engine: Engine, session: Session, run: Run | None) -> Caller:
        """The caller of a spawn by a person in this session: with the tools, sandbox and folder of the session's turns.

        Search by the provider depends on the model, not on rights, so it counts as allowed. Raises `Refused` if a
        sandbox is required and there is none.
        """
        self._use_engine(engine)
        box = self.tool_choice.box(session)
        tools = self.tool_choice.tools_in(position_of(session, run, box, searches=True)).tools
        return Caller(
            session=session.key,
            tools=tools.names,
            boxed=box != "plain",
            offline=box == "none",
            workspace=self._folder_for_child(session, engine.drives),
        )

    def _folder_for_child(self, session: Session, drives: bool) -> str:
        """The folder that a child of this session inherits; empty for that of the process which drives the child. A
        process that only commits passes its own folder on only if a program named it."""
        facts = session.facts
        named = agent(self._config, facts.agent_id).workspace or self._config.agents.defaults.workspace
        is_known = drives or self._named or facts.workspace or facts.project or named
        return str(self._folder(session)) if is_known else ""

    @property
    def runtimes(self) -> tuple[str, ...]:
        """Names of the runtimes, besides our own loop."""
        return tuple(sorted(self._runtimes))

    def runtime(self, name: str) -> Runtime | None:
        """The runtime of this name, if there is one."""
        return self._runtimes.get(name)

    def work_place(self, session: Session) -> tuple[Path, Mapping[str, str]]:
        """The folder of a foreign runtime for this session, and its environment variables. Raises `Refused` for a
        workspace that needs a person's confirmation."""
        workspace = self._folder(session)
        self._check_place(_real(workspace))
        return workspace / session.facts.cwd, self._env

    def handover(self, session: Session, run: Run | None) -> HandoverLook | None:
        """Reads the files that a session hands over; None if it hands over none."""
        return self._files.handover(session, run, self._folder(session))

    def check_model(self, name: str, thinking: str | None) -> None:
        """Raise for an unknown model, a missing key, or a thinking level that the model does not have."""
        self._registry.check_key(name)
        card = self._catalog.find(name)
        if card is not None and not card.thinks and thinking not in (None, "off"):
            raise BadInput("thinking", f"must be off: {name} has no other level", thinking)

    def workspace_of(self, agent_id: str, given: str, project: str = "") -> Path:
        """The workspace of a session of this agent: the given folder, else that of the settings, else the project's,
        else that of this process."""
        return self._found_workspace(agent_id, given, project)

    def _find_workspace(self, agent_id: str, given: str, project: str) -> Path:
        named = agent(self._config, agent_id).workspace or self._config.agents.defaults.workspace
        return Path(given or named or project or self._workspace).expanduser().absolute()

    async def make(self, request: SpawnRequest) -> None:
        """Make the files of a new run, and check that its `cwd` exists."""
        await self._files.make(request)
        named = {image.sha256 for image in request.spec.images}
        if named:
            receipts = zip(request.files, request.spec.attachments, strict=True)
            await self.images.write([file.data for file, receipt in receipts if receipt.sha256 in named])

    async def bind_thread(self, engine: Engine, run: Run) -> None:
        """Bind the child to the thread that a hook prepares. Raises `Refused` if none does, or bindings are off."""
        if not self._config.session.thread_bindings.enabled:
            raise Refused("forbidden", "thread: session.threadBindings.enabled is false")
        asked = await engine.store.read(lambda tx: outbox.spawning_event(tx, run))
        address = await self._outlet.bind(asked)
        await engine.commit(bindings.bind, run.key, address, asked.to)

    def rules(self) -> Rules:
        """The settings that commits need, and the hooks that listen in this process."""
        rules = rules_of(self._config)
        outlet = self._outlet
        return replace(rules, hooks=outlet.listeners, context_engine=outlet.has_context_engine)

    def _choice(self, agent_id: str, spec: Spec | None, wishes: Sequence[Wishes] = ()) -> tuple[Chosen, Thinking]:
        """Model and thinking level of a turn: the last wish, else the settings. Raises `Refused` without a model."""
        wished, level = "", "" if spec is None else spec.thinking
        for wish in wishes:
            wished, level = wish.model or wished, wish.thinking or level
        thinking = _thinking(level)
        if wished:
            return Chosen(wished, "model"), thinking
        if spec is None:
            chosen = model_for_conversation(self._config, agent_id)
        else:
            chosen = model_for_child(self._config, spec.model or None, agent_id)
        if chosen is None:
            raise Refused("error", f"{NO_MODEL}; {self._registry.usable_words(self._config.models.providers)}")
        return chosen, thinking

    def _folder(self, session: Session) -> Path:
        facts = session.facts
        return self.workspace_of(facts.agent_id, facts.workspace, facts.project)

    def _check_place(self, real: str) -> None:
        """Raise `Refused` for a workspace that contains the home folder and that no person has confirmed, and for a
        part of fledge's own code. Called before the first tool call in a workspace."""
        if is_broad(real, self.protected.home) and real not in self._named and real not in accepted(self.user):
            raise Refused("forbidden", needs_yes(real))
        if holds_code(real):
            raise Refused("forbidden", NO_WORKSPACE.format(real))
        keep_out([real])

    def _rule_for(self, asker: Asker, command: str) -> Permission | Offer | None:
        """The rule that covers a command, else the rule that *always* would add. Rules are read each time, so that a
        revoked rule has no effect. A rule that cannot be read is not applied."""
        own = self._config.tools.exec.any_paths
        held = read_rules(self.user, own)
        for broken in held.broken:
            log.warning("%s", broken)
        for rule in held.rules:
            if not rule.counts:
                log.warning("the rule %s, `%s`, does not count any more: fledge permissions", rule.id, rule.shown)
        return covering(held.rules, asker, command, own) or offer(command, asker, own)

    def _brief(self, session: Session, run: Run, spec: Spec, makes_files: bool) -> Brief:
        return Brief(
            key=session.key,
            requester=run.terms.parent,
            task=spec.task,
            label=spec.label,
            depth=session.depth,
            max_depth=subagent_limits(self._config, session.facts.agent_id).max_spawn_depth,
            role="orchestrator" if session.facts.role == "orchestrator" else "leaf",
            mode=run.terms.mode,
            plan=run.plan,
            output_schema=msgspec.json.encode(spec.output_schema).decode()
            if spec.output_schema is not None and run.ended is None
            else "",
            artifacts=session.facts.artifacts if makes_files else "",
            attachments=self._files.attachments(session, spec),
            attached=tuple([one.name for one in spec.attachments]) if spec.attachments else (),
            attached_as=spec.mount_path,
            branch=self._files.places.branch(run.terms.leaves),
        )

    def _system(self, session: Session, spec: Spec | None, brief: Brief | None, workspace: Path) -> str:
        own = agent(self._config, session.facts.agent_id).prompt
        prompt = MAIN_PROMPT.format(workspace=workspace) if brief is None else child_prompt(brief)
        return "\n\n".join(filter(None, [own, "" if spec is None else spec.instructions, prompt]))

    async def _documents(self, engine: Engine, session: Session, run: Run | None, place: str) -> list[str]:
        """The documents of the workspace for the prompt, without those that are left out.

        All documents are checked at each turn, also those that this session does not load, so that a change is noticed
        soon.
        """
        found = read_documents(Path(place))
        if not found:
            return []
        versions = {name: words.version for name, words in found.items()}
        known = await engine.store.read(lambda tx: transcripts.known_workspace(tx, place))
        left_out: frozenset[str] = frozenset()
        if any(known.document(name).accepted != version.digest for name, version in versions.items()):
            left_out = await engine.until_it_works(
                lambda: engine.commit(transcripts.judge_documents, session.key, place, versions)
            )
        names = document_names("main" if run is None else "child")
        return [_document(name, found[name].text) for name in names if name in found and name not in left_out]

    async def _besides(self, engine: Engine, snapshot: TurnSnapshot) -> list[str]:
        """More parts of the prompt: the list of children, and what the messages of this turn add."""
        key, now = snapshot.session.key, engine.clock.now()
        children = await engine.store.read(lambda tx: children_shown(tx, key, now)) if snapshot.has_children else ""
        return [text for text in (children, *(wish.extra_system_prompt for wish in snapshot.wishes)) if text]

    def _cost(self, asked: str, answered: str, usage: Usage) -> float | None:
        """The cost by the requested name, else by the answered one: providers answer with dated names."""
        cost = self._catalog.cost(asked, usage)
        return self._catalog.cost(answered, usage) if cost is None else cost

    async def use_store(self, store: Store) -> None:
        """Use this store to sweep files of transcript entries, and sweep once, for a process that died. What its
        commands made at guarded paths is set aside."""
        self._store = store
        try:
            await asyncio.to_thread(set_aside.settle_dead, self._aside)
        except OSError as error:
            words = "what commands of a dead process made at guarded paths could not be set aside: %s"
            log.warning(words, error_words(error))
        try:
            await self.sweep_files()
        except OSError as error:
            log.warning("leftover files of transcript entries could not be removed: %s", error_words(error))

    async def sweep_files(self) -> None:
        """Remove the images and attached files that no session holds. Raises `OSError` if one cannot be removed."""
        if self._store is not None:
            await self.images.sweep(self._store)

    async def call(self, post: OutboxPost) -> Address | None:
        """Perform a post of the outbox: send a message, or remove files of a run or a session."""
        if post.kind == "remove":
            await self._files.call(post)
            return None
        if post.kind == SWEEP_IMAGES:
            await self.sweep_files()
            return None
        return await self._outlet.call(post)

    async def close(self) -> None:
        """Close the connections to models and channels."""
        await self._registry.close()
        await self._outlet.close()


def configured_runtimes(config: Config, env: Environment) -> dict[str, Runtime]:
    """The runtimes of the configuration, each with its secrets."""
    return {
        name: CommandRuntime(
            command=entry.command,
            timeout_s=entry.timeout_seconds or None,
            env={secret: env[secret] for secret in entry.pass_env if secret in env},
            repeatable=entry.repeatable,
            retries=entry.retries,
        )
        for name, entry in config.runtimes.items()
    }


def check_runtime_name(name: str) -> None:
    """Raise `BadInput` for a name that is not a plain word, or that is the name of our own loop."""
    if not AGENT_ID.fullmatch(name) or name == NATIVE:
        raise BadInput(f"runtimes.{name}", f"must be named by letters, digits, - and _, and not {NATIVE}", name)


def _thinking(word: str) -> Thinking:
    return next((level for level in LEVELS if level == word), "off")


def _real(workspace: Path) -> str:
    return os.path.realpath(workspace)


def _works_in(place: str, making: frozenset[str], box: Box) -> str:
    """The folder in which these tools can write: without a sandbox a command can write anywhere."""
    if "exec" in making and box == "plain":
        return "/"
    return place if making else ""


def _document(name: str, text: str) -> str:
    return f"## {name}\n\n{cut_document(name, text)}"
