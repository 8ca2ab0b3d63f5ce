"""The settings: every block of `fledge.json5` as a frozen struct, with defaults, bounds and meaning beside the field.

A field that is None is not set; in an agent's own settings that means "as in agents.defaults". Lists are tuples.
This file does not know how a file is read, how layers are merged, or which setting wins.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from msgspec import Meta, field

from fledge.core.access import Visibility
from fledge.core.announce import Style
from fledge.core.hook import HookName
from fledge.core.inbox import Drop, QueueMode
from fledge.core.value import Value
from fledge.models.base import Thinking
from fledge.models.catalog import Effort, Price, WireName

TextList = tuple[str, ...]
ApprovalSetting = Literal["never", "ask"]
SandboxMode = Literal["auto", "off", "non-main", "all"]
SandboxView = Literal["spawned", "all"]
SandboxNetwork = Literal["shared", "none"]

Deliver = Literal["turn", "send"]
Input = Literal["text", "image", "audio", "video", "document"]
SearchService = Literal["brave", "tavily", "searxng"]
WORDS = (
    Thinking,
    QueueMode,
    Drop,
    Visibility,
    ApprovalSetting,
    SandboxMode,
    SandboxView,
    SandboxNetwork,
    Style,
    Deliver,
    HookName,
    WireName,
    Effort,
    Input,
    SearchService,
)
"""Every choice of words, each in the order in which people are shown the words."""


def _means(meaning: str, form: str | None = None) -> Meta:
    return Meta(description=meaning, extra=None if form is None else {"form": form})


def _from(least: int, meaning: str, most: int | None = None) -> Meta:
    return Meta(ge=least, le=most, description=meaning)


# ---- settings of both defaults and agents: one alias each, so that bounds and meaning are written once ---------------

Strict = Annotated[
    Literal["strict"], _means("preset: `strict` is maxConcurrent 5 and maxRetained 15; a key beside it wins")
]
Depth = Annotated[int, _from(1, "how deep spawning may nest; 1: children cannot spawn", 5)]
MostChildren = Annotated[int, _from(1, "active children a session may have at once")]
Width = Annotated[int, _from(1, "child runs that work at once; more are queued")]
Retained = Annotated[
    int, _from(0, "settled, active and reserved runs a session may hold, archived not counted; 0: no cap")
]
ArchiveMinutes = Annotated[int, _means("minutes from settled to archived; 0 or less: never")]
RunSeconds = Annotated[int, _from(0, "hard timeout of a run, from when it first runs; 0: none")]
QueueSeconds = Annotated[int, _from(0, "how long a run may wait for a slot; 0: for ever")]
StuckSeconds = Annotated[int, _from(1, "a run that commits nothing for this long is reported as stuck, once")]
ChildThinking = Annotated[Thinking, _means("thinking level of children")]
AllowAgents = Annotated[
    tuple[Annotated[str, _means("", "target")], ...],
    _means("other agents that a model may spawn; `*`: any; the own one always may, people and programs may spawn all"),
]
BudgetTokens = Annotated[int, _from(0, "tokens a child may use; 0: no limit")]
BudgetUsd = Annotated[float, _from(0, "money a child may use, in US dollars; 0: no limit")]
BudgetTurns = Annotated[int, _from(0, "turns a child may take; 0: no limit")]
BudgetSeconds = Annotated[float, _from(0, "seconds a child may work; 0: no limit")]
ToolSandbox = Annotated[
    SandboxMode,
    _means("which sessions run tools in a sandbox; auto: all, where bubblewrap is available"),
]
SandboxSessions = Annotated[
    SandboxView,
    _means("spawned: session tools of a sandboxed session reach no further than its tree"),
]
NetworkOfSandbox = Annotated[
    SandboxNetwork, _means("none: commands in the sandbox have no network, not even this computer's own")
]
WorkspaceSetting = Annotated[str, _means("the folder the agent works in")]
MaxTokens = Annotated[
    int,
    _from(1, "longest reply in tokens; never more than the model's maxOutput. Not set: 8192 or less, by model"),
]


class SettingsBlock(Value, rename="camel", omit_defaults=True):
    """A block of settings: camelCase in a file, and written without the fields that have their default."""


class ModelChoice(SettingsBlock):
    """A model, and the fallbacks to try when it fails. In a file a plain name is enough."""

    primary: str
    fallbacks: TextList = ()


ChildModel = Annotated[ModelChoice, _means("model of children")]
OwnModel = Annotated[ModelChoice, _means("model of the agent's own sessions; children use it if nothing else is set")]


# ---- agents ----------------------------------------------------------------------------------------------------------


class BudgetBlock(SettingsBlock):
    """The limits on what a child may use; 0 is no limit."""

    tokens: BudgetTokens = 0
    usd: BudgetUsd = 0.0
    turns: BudgetTurns = 0
    seconds: BudgetSeconds = 0.0


class AgentBudget(SettingsBlock):
    """One agent's own settings for the budget of children that run as this agent; 0 lifts a default limit."""

    tokens: BudgetTokens | None = None
    usd: BudgetUsd | None = None
    turns: BudgetTurns | None = None
    seconds: BudgetSeconds | None = None


class Subagents(SettingsBlock):
    """Limits and defaults of children, for every agent."""

    limits: Strict | None = None
    max_spawn_depth: Depth = 1
    max_children_per_agent: MostChildren = 5
    max_concurrent: Width = 8
    max_retained: Retained = 0
    archive_after_minutes: ArchiveMinutes = 60
    run_timeout_seconds: RunSeconds = 0
    queue_timeout_seconds: QueueSeconds = 0
    stuck_after_seconds: StuckSeconds = 300
    model: ChildModel | None = None
    thinking: ChildThinking | None = None
    budget: BudgetBlock = BudgetBlock()
    allow_agents: AllowAgents | None = None
    """Not set: only the agent itself, and for main also those given to `open(agents=…)`."""


class AgentSubagents(SettingsBlock):
    """One agent's own limits and defaults for children."""

    limits: Strict | None = None
    max_spawn_depth: Depth | None = None
    max_children_per_agent: MostChildren | None = None
    max_concurrent: Width | None = None
    max_retained: Retained | None = None
    archive_after_minutes: ArchiveMinutes | None = None
    run_timeout_seconds: RunSeconds | None = None
    queue_timeout_seconds: QueueSeconds | None = None
    stuck_after_seconds: StuckSeconds | None = None
    model: ChildModel | None = None
    thinking: ChildThinking | None = None
    budget: AgentBudget = AgentBudget()
    allow_agents: AllowAgents | None = None


PRESETS: Mapping[str, Mapping[str, int]] = {"strict": {"maxConcurrent": 5, "maxRetained": 15}}
"""The settings that each value of `limits` stands for, by wire key."""


class ActiveHoursBlock(SettingsBlock):
    """When heartbeats and notices may start a turn. May run over midnight; equal times: never."""

    start: Annotated[str, _means("first minute in which a heartbeat may run", "start")]
    end: Annotated[str, _means("minute from which no heartbeat runs; may be before `start`, over midnight", "end")]
    timezone: Annotated[str, _means("time zone of both; local (or user): this computer's", "timezone")] = "local"


class HeartbeatBlock(SettingsBlock):
    """Heartbeats, which are turns without a message: periodic ones, and those that read notices."""

    every: Annotated[str, _means("how often a heartbeat runs by itself", "duration")] = "off"
    active_hours: ActiveHoursBlock | None = None
    ack_max_chars: Annotated[int, _from(0, "a HEARTBEAT_OK with at most this much beside it is silence")] = 300
    prompt: Annotated[str, _means("the message that begins a heartbeat; not set: look at what came in")] | None = None
    target: Annotated[
        str, _means("where its words go; last: where the conversation's words go; none: nowhere but there", "outlet")
    ] = "last"
    to: Annotated[str, _means("the receiver on that channel; not set: the conversation's, if it is on it")] | None = (
        None
    )
    model: Annotated[str, _means("model of heartbeats; not set: the conversation's")] | None = None


class SandboxBlock(SettingsBlock):
    """Where tools of a session run."""

    mode: ToolSandbox = "auto"
    network: NetworkOfSandbox = "shared"
    session_tools_visibility: SandboxSessions = "spawned"


class AgentSandbox(SettingsBlock):
    """One agent's own settings for its sandbox."""

    mode: ToolSandbox | None = None
    network: NetworkOfSandbox | None = None
    session_tools_visibility: SandboxSessions | None = None


class IdentityBlock(SettingsBlock):
    """The identity that the agent presents to people."""

    name: Annotated[str, _means("the name the agent goes by")] | None = None
    theme: Annotated[str, _means("its manner, in a few words")] | None = None
    emoji: Annotated[str, _means("its sign in lists")] | None = None


class ToolRule(SettingsBlock):
    """Whether a person must approve the calls of a tool; None leaves it to the tool."""

    approval: (
        Annotated[ApprovalSetting, _means("ask: a person approves each call; never: calls need no approval")] | None
    ) = None


class ToolPolicy(SettingsBlock):
    """Which tools are available, and which of them need approval."""

    allow: Annotated[TextList, _means("only these tools (globs); not set: all")] | None = None
    deny: Annotated[TextList, _means("never these tools (globs); wins over allow")] = ()
    rules: Mapping[str, ToolRule] = {}
    """By tool name. In a file each stands beside `allow`: `tools.exec.approval`."""


class AgentBlock(SettingsBlock):
    """One configured agent."""

    id: Annotated[str, _means("the agent's name in session keys; unique", "agentId")]
    description: Annotated[str, _means("what it is good for, in a line; shown where agents are listed")] | None = None
    prompt: Annotated[str, _means("its instructions, at the start of the system prompt")] | None = None
    model: OwnModel | None = None
    max_tokens: MaxTokens | None = None
    identity: IdentityBlock = IdentityBlock()
    workspace: WorkspaceSetting | None = None
    tools: ToolPolicy = ToolPolicy()
    sandbox: AgentSandbox = AgentSandbox()
    subagents: AgentSubagents = AgentSubagents()
    output_schema: Annotated[dict[str, Any], _means("JSON Schema that answers of its runs meet")] | None = None


class AgentDefaults(SettingsBlock):
    """The settings that hold for every agent that does not set them itself."""

    model: OwnModel | None = None
    max_tokens: MaxTokens | None = None
    workspace: WorkspaceSetting | None = None
    max_concurrent: Annotated[int, _from(1, "conversations (not children) that work at once")] = 4
    max_steps: Annotated[int, _from(0, "steps with tool calls that one attempt or turn may take; 0: no limit")] = 1000
    max_repeated_steps: Annotated[
        int, _from(0, "an attempt or turn ends after so many steps in a row that repeat earlier ones; 0: never")
    ] = 100
    subagents: Subagents = Subagents()
    heartbeat: HeartbeatBlock = HeartbeatBlock()
    sandbox: SandboxBlock = SandboxBlock()


class AgentsBlock(SettingsBlock):
    """All agents."""

    defaults: AgentDefaults = AgentDefaults()
    list: tuple[AgentBlock, ...] = ()


# ---- models ----------------------------------------------------------------------------------------------------------

KeyFile = Annotated[str, _means("the file with its key; only its owner may open it")]


class CatalogRow(SettingsBlock):
    """The facts about one model; a field that is not set stays as the built-in catalogue has it."""

    window: Annotated[int, _from(1, "tokens of input and output together")] | None = None
    max_output: Annotated[int, _from(1, "tokens of one reply at most")] | None = None
    efforts: Annotated[tuple[Effort, ...], _means("the reasoning levels it accepts; empty: none")] | None = None
    chat_efforts: (
        Annotated[tuple[Effort, ...], _means("those it accepts beside tools on chat completions, where fewer")] | None
    ) = None
    images: Annotated[bool, _means("whether it accepts images")] | None = None
    search: Annotated[bool, _means("whether its provider searches the web for it")] | None = None
    wire: Annotated[WireName, _means("the protocol of this model, where it differs from its provider's")] | None = None
    price: Price | None = None
    default: Annotated[bool, _means("the model that stands for its provider")] | None = None


class ProviderModel(SettingsBlock):
    """A model as OpenClaw describes it, inside its provider; `models.catalog` has the same facts and more."""

    id: Annotated[str, _means("the provider's name for the model")]
    context_window: Annotated[int, _from(1, "as catalog.window")] | None = None
    max_tokens: Annotated[int, _from(1, "as catalog.maxOutput")] | None = None
    reasoning: Annotated[bool, _means("true: it accepts the efforts low, medium and high")] | None = None
    input: Annotated[tuple[Input, ...], _means("what it accepts; fledge sends text and images")] | None = None
    cost: Price | None = None


class ModelProvider(SettingsBlock):
    """A service with models. For a built-in one, the fields that are set replace the built-in values."""

    api: Annotated[WireName, _means("the protocol it speaks; of a new provider openai-chat")] | None = None
    base_url: (
        Annotated[str, _means("its address, such as https://host/v1; wins over a variable such as OPENAI_BASE_URL")]
        | None
    ) = None
    api_key_env: (
        Annotated[str, _means("the environment variable with its key (or with _FILE behind it: a file's path)")] | None
    ) = None
    api_key_file: KeyFile | None = None
    headers: Annotated[Mapping[str, str], _means("headers of every request; never a key")] = {}
    query: Annotated[Mapping[str, str], _means("added to the address of every request; never a key")] = {}
    timeout_seconds: (
        Annotated[float, Meta(gt=0, le=86400, description="how long one request may take; not set: 1800, silent 300")]
        | None
    ) = None
    models: tuple[ProviderModel, ...] = ()


class Models(SettingsBlock):
    """The block `models`."""

    providers: Annotated[Mapping[str, ModelProvider], _means("services with models, by name")] = {}
    catalog: Annotated[Mapping[str, CatalogRow], _means("figures of models, by provider/name")] = {}
    patience_seconds: Annotated[
        float, _from(0, "seconds a subagent waits for a model that is down, overloaded or at its rate limit")
    ] = 600.0
    ca_file: (
        Annotated[str, _means("certificates (PEM) of authorities that are believed besides the system's")] | None
    ) = None


# ---- tools -----------------------------------------------------------------------------------------------------------


class ChildTools(SettingsBlock):
    """Which tools children get, within the parent's ceiling."""

    allow: Annotated[TextList, _means("children get only these tools (globs); not set: the usual ones")] | None = None
    also_allow: Annotated[TextList, _means("lifts a default denial for children")] = ()
    deny: Annotated[TextList, _means("children never get these tools (globs); always wins")] = ()


class SubagentTools(SettingsBlock):
    """The block `tools.subagents`."""

    tools: ChildTools = ChildTools()


class AgentToAgentBlock(SettingsBlock):
    """Whether agents may talk to each other, and which of them."""

    enabled: Annotated[bool, _means("agents may send to sessions of other agents")] = False
    allow: Annotated[TextList, _means("agents that may take part, both sides (globs); empty: any")] = ()


class SessionTools(SettingsBlock):
    """The block `tools.sessions`."""

    visibility: Annotated[
        Visibility,
        _means("sessions the session tools reach: its own, those it spawned, those of its agent, all"),
    ] = "tree"


class AttachmentsBlock(SettingsBlock):
    """Files that come with a spawn. The limits hold for files of messages too."""

    enabled: Annotated[bool, _means("a spawn may carry attachments")] = False
    max_files: Annotated[int, _from(0, "files per spawn or message")] = 50
    max_file_bytes: Annotated[int, _from(0, "bytes per file")] = 1024 * 1024
    max_total_bytes: Annotated[int, _from(0, "bytes per spawn or message")] = 5 * 1024 * 1024
    retain_on_session_keep: Annotated[bool, _means("attachments of a kept session stay until it is archived")] = False


class SpawnTool(ToolRule):
    """The block `tools.sessions_spawn`."""

    attachments: AttachmentsBlock = AttachmentsBlock()


class ExecTool(ToolRule):
    """The block `tools.exec`."""

    any_paths: Annotated[
        TextList,
        _means("commands, such as `just test`, whose rules hold for any paths at their end (docs/security.md)"),
    ] = ()
    env: Annotated[
        TextList, _means("variables of the environment that commands may see besides the usual ones, by name")
    ] = ()


class WebSearch(SettingsBlock):
    """The service behind the tool `web_search`."""

    provider: (
        Annotated[
            SearchService,
            _means("which service searches; not set: the model's provider, where the catalogue says it can"),
        ]
        | None
    ) = None
    enabled: Annotated[bool, _means("false: no web_search, not the model provider's own either")] = True
    api_key_env: (
        Annotated[
            str,
            _means("the environment variable with its key; not set: BRAVE_API_KEY, TAVILY_API_KEY; _FILE as usual"),
        ]
        | None
    ) = None
    api_key_file: KeyFile | None = None
    base_url: Annotated[str, _means("its address; required of searxng, such as http://127.0.0.1:8888")] | None = None


class WebTools(SettingsBlock):
    """The block `tools.web`."""

    search: WebSearch = WebSearch()


class Tools(ToolPolicy):
    """The block `tools`."""

    exec: ExecTool = ExecTool()
    unguarded: Annotated[
        TextList,
        _means("guarded places of the workspace that tools may write unasked, such as `.git` (docs/security.md)"),
    ] = ()
    subagents: SubagentTools = SubagentTools()
    agent_to_agent: AgentToAgentBlock = AgentToAgentBlock()
    sessions: SessionTools = SessionTools()
    sessions_spawn: SpawnTool = field(default=SpawnTool(), name="sessions_spawn")
    web: WebTools = WebTools()


# ---- sessions and messages -------------------------------------------------------------------------------------------


class PingPong(SettingsBlock):
    """The block `session.agentToAgent`."""

    max_ping_pong_turns: Annotated[int, _from(0, "turns two agents may exchange after a send", 5)] = 5


class ThreadBindings(SettingsBlock):
    """Sessions bound to a channel's thread."""

    enabled: Annotated[bool, _means("sessions may be bound to threads")] = True
    idle_hours: Annotated[float, _from(0, "unbound after this long without a message; 0: never")] = 24.0
    max_age_hours: Annotated[float, _from(0, "unbound at this age; 0: never")] = 0.0


class SessionBlock(SettingsBlock):
    """The block `session`."""

    agent_to_agent: PingPong = PingPong()
    parent_fork_max_tokens: Annotated[int, _from(0, "largest history `context: fork` copies; 0: no limit")] = 100_000
    thread_bindings: ThreadBindings = ThreadBindings()


DebounceMs = Annotated[int, _from(0, "quiet time before waiting items start a turn; each item restarts it, 5 s in all")]
QueueModeSetting = Annotated[
    QueueMode,
    _means("how items reach a busy session; not set: completions are collected, people's messages steer"),
]


PeopleMode = Annotated[QueueMode, _means("how people's messages reach a busy conversation; not set: as `mode`")]


class ChannelQueue(SettingsBlock):
    """How messages and completions of one channel reach a busy session. In a file a plain mode is enough."""

    mode: (
        Annotated[
            QueueMode,
            _means("how items of this channel reach a busy session; `byChannel.<name>` may be this word alone"),
        ]
        | None
    ) = None
    people: Annotated[QueueMode, _means("how people's messages of this channel do; not set: as its `mode`")] | None = (
        None
    )


class QueueBlock(SettingsBlock):
    """How messages and completions reach a busy session."""

    mode: QueueModeSetting | None = None
    people: PeopleMode | None = None
    debounce_ms: DebounceMs = 1000
    cap: Annotated[int, _from(1, "messages and notices that may wait; completions are never dropped")] = 20
    drop: Annotated[
        Drop, _means("what happens over the cap: keep one line each, drop the oldest, refuse the newest")
    ] = "summarize"
    by_channel: Mapping[str, ChannelQueue] = {}
    debounce_ms_by_channel: Annotated[Mapping[str, DebounceMs], _means("debounceMs, by channel")] = {}


class Messages(SettingsBlock):
    """The block `messages`."""

    queue: QueueBlock = QueueBlock()


# ---- announce, plan, retention ---------------------------------------------------------------------------------------


class AnnounceBlock(SettingsBlock):
    """How a child's outcome is announced."""

    style: Annotated[
        Style,
        _means("auto: the whole result up to inlineChars, else a summary; full: always all; compact: always a summary"),
    ] = "auto"
    inline_chars: Annotated[int, _from(0, "longest result that `auto` tells whole")] = 4000
    deliver: Annotated[
        Deliver,
        _means("turn: the requester's model tells it; send: posted to the bound channel without a model turn"),
    ] = "turn"
    max_retries: Annotated[
        int, _from(0, "retries before a result that finds no requester or channel is undelivered")
    ] = 3


class UndeliveredList(SettingsBlock):
    """The block `undelivered`."""

    retention_days: Annotated[int, _from(1, "days a result stays in the undelivered list")] = 7


class PlanBlock(SettingsBlock):
    """The block `plan`."""

    approval_hours: Annotated[float, Meta(gt=0, description="hours a plan waits for its answer before it expires")] = (
        24.0
    )


class Retention(SettingsBlock):
    """How long data is kept after archiving."""

    kept_days: Annotated[int, _from(1, "days a kept session stays readable after its run was archived")] = 30
    timeline_days: Annotated[
        int,
        _from(
            1, "days to keep the tombstone and timeline of an archived run, and the record of messages between agents"
        ),
    ] = 30


class ArchiveBlock(SettingsBlock):
    """The block `archive`."""

    delete_kept: Annotated[bool, _means("archiving a run removes its kept session at once")] = False


class CommandRuntimeBlock(SettingsBlock):
    """A program that carries out tasks: another agent's command line, a script."""

    command: Annotated[
        TextList,
        _means("the program and its arguments; `{task}` in one is replaced by the task, else it is the standard input"),
    ]
    timeout_seconds: Annotated[float, _from(0, "seconds one execution may take; 0: as long as the run itself")] = 0.0
    pass_env: Annotated[
        TextList, _means("variables of the environment it may see besides the usual ones, by name")
    ] = ()
    repeatable: Annotated[bool, _means("a task that a crash interrupted may simply be done again")] = False
    retries: Annotated[int, _from(0, "how often a failure is followed by another try", 5)] = 0


# ---- channels, hooks, gateway ----------------------------------------------------------------------------------------


class Webhook(SettingsBlock, kw_only=True):
    """A server outside fledge, to which signed JSON is posted."""

    url: Annotated[str, _means("where it is posted to; redirects are not followed", "webhook")]
    secret_env: (
        Annotated[str, _means("the environment variable with the secret that signs; this or secretFile")] | None
    ) = None
    secret_file: Annotated[str, _means("the file with that secret; only its owner may open it")] | None = None
    timeout_seconds: Annotated[float, Meta(gt=0, le=300, description="how long one try may take")] = 10.0


class ChannelBlock(Webhook, kw_only=True):
    """A channel: a way to people outside fledge."""

    kind: Annotated[Literal["webhook"], _means("how they are reached")]
    agent_id: Annotated[
        str, _means("the agent whose main conversation gets messages that are bound to no session", "agentId")
    ] = "main"


class Hook(Webhook, kw_only=True):
    """A webhook that receives the events of runs."""

    on: Annotated[tuple[HookName, ...], _means("which hooks it receives")] = ("subagent_spawned", "subagent_ended")
    retries: Annotated[int, _from(0, "how often it is tried again", 10)] = 3


class GatewayBlock(SettingsBlock):
    """How `fledge serve` can be reached, and the limits on its requests."""

    host: Annotated[str, _means("the address it listens on; set another to let other machines reach it")] = "127.0.0.1"
    port: Annotated[int, _from(0, "the port it listens on; 0: any that is free", 65535)] = 18789
    allowed_hosts: Annotated[
        TextList, _means("names under which it may be asked for, besides this machine's own and addresses")
    ] = ()
    allowed_origins: Annotated[
        TextList, _means("web pages of other origins that may use it, such as https://example.org")
    ] = ()
    max_body_kb: Annotated[int, _from(1, "the largest request, in KiB", 1_000_000)] = 8192
    requests_per_second: Annotated[
        int, _from(1, "requests a client may make per second, with bursts of four times")
    ] = 50
    max_connections: Annotated[int, _from(1, "connections at once")] = 256
    max_subscriptions: Annotated[int, _from(1, "feeds that are watched at once")] = 64


class PluginSlots(SettingsBlock):
    """Objects of the user that take the place of a part of fledge."""

    context_engine: Annotated[
        str, _means("keeps context for subagents; imported when a folder is opened; empty: none", "object")
    ] = ""


class PluginsBlock(SettingsBlock):
    """Code of the user that fledge imports."""

    slots: PluginSlots = PluginSlots()


class Config(SettingsBlock):
    """All settings."""

    agents: AgentsBlock = AgentsBlock()
    announce: AnnounceBlock = AnnounceBlock()
    archive: ArchiveBlock = ArchiveBlock()
    channels: Annotated[Mapping[str, ChannelBlock], _means("channels, by name")] = {}
    gateway: GatewayBlock = GatewayBlock()
    hooks: Annotated[Mapping[str, Hook], _means("webhooks that receive events of runs, by name")] = {}
    messages: Messages = Messages()
    models: Models = Models()
    plan: PlanBlock = PlanBlock()
    plugins: PluginsBlock = PluginsBlock()
    retention: Retention = Retention()
    runtimes: Mapping[str, CommandRuntimeBlock] = {}
    """The programs that a spawn may name as `runtime`, besides `subagent`, by name."""
    session: SessionBlock = SessionBlock()
    tools: Tools = Tools()
    undelivered: UndeliveredList = UndeliveredList()
