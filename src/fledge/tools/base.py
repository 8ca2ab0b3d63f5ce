"""Tools: typed functions with a schema, and flags that say how they may be run.

`@tool` derives name, description and schema from the function; `Tool.call` checks the arguments that a model sent,
calls the function, and turns every failure into a result that the model can read. Nothing here knows sessions or
models' wire formats; a tool learns from its `ToolContext` which folders it may touch.
"""

import asyncio
import contextvars
import inspect
import re
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final, Generic, Literal, ParamSpec, TypeVar, overload

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from fledge.cancellation import describe, is_stop
from fledge.core.file_change import FileChange, refused_change
from fledge.core.images import Image, read_images, with_names
from fledge.core.params import described, read_params, struct_type
from fledge.core.protected import UNPROTECTED, Protected
from fledge.core.redact import error_words
from fledge.errors import BadInput, FledgeError
from fledge.tools.signature import ToolFunction, arguments_of, is_async, name_of, read_docstring, schema_of

TIMEOUT_S: Final = 120.0
MAX_CHARS: Final = 50_000
"""How many characters of a result a model sees, unless the tool has a limit of its own."""
MAX_ERROR_CHARS: Final = 2_000
THREAD_GRACE_S: Final = 1.0
"""How long a stopped call waits for its thread, which cannot be ended from outside."""

S = TypeVar("S", bound=Struct)
P = ParamSpec("P")
R = TypeVar("R")

_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_BYTE: Final = re.compile(r"\(byte (\d+)\)")


class Replacement(Struct, frozen=True):
    """A file that a call has replaced: its path, its content before, and its size then; no content if it was new."""

    path: str
    before: bytes | None
    size: int


class ToolContext(Struct, frozen=True, kw_only=True):
    """The context of a tool call. A tool function with a parameter of this type receives it; models do not see it.

    >>> @fledge.tool(read_only=True)
    ... async def count_files(context: fledge.ToolContext) -> int:
    ...     "How many files are in the workspace."
    ...     return len(list(context.workspace.iterdir()))
    """

    session: str
    """The session key."""
    entry: int
    """The number of the transcript entry with this call."""
    index: int
    """The position of this call in that entry."""
    workspace: Path
    """The folder in which the agent works; tools stay inside it."""
    cwd: str = ""
    """The folder, relative to the workspace, where relative paths begin; empty for the workspace itself."""
    readable: tuple[Path, ...] = ()
    """Other folders that may be read: attachments, folders of its children."""
    protected: Protected = UNPROTECTED
    """Paths that are hidden from tools, and paths that need a person's approval to write."""
    approved: bool = False
    """A person has approved this call."""
    wrote: Callable[[str, bytes], None] | None = None
    """Call it with path and content for each file written; any thread may."""
    env: Mapping[str, str] = field(default_factory=dict)
    """The environment for child processes, without secrets."""
    tools: frozenset[str] | None = None
    """The names of all tools of the session in this turn; None if unknown."""
    boxed: bool = False
    """True if commands of the session run in a sandbox."""
    offline: bool = False
    """True if that sandbox has no network."""
    replaced: Callable[[Replacement], None] | None = None
    """Internal: call it with the content of each file that was replaced; any thread may."""
    agreed: str = ""
    """Internal: the digest of the change that the person who approved this call has seen."""
    generations: Mapping[str, int] | None = None
    """Internal: which stops the turn has seen."""
    epoch: int | None = None
    """Internal: the lease under which the call runs."""
    interrupts: int = 0
    """Internal: how many steps of the turn were interrupted."""

    @property
    def call_key(self) -> str:
        """A key of this call: the same when the call is repeated after a crash, different for every other call."""
        return f"{self.session}#{self.entry}.{self.index}"


ApprovalMode = Literal["ask", "never"]
"""Whether a person must approve each call of a tool; the values of the setting `tools.<name>.approval`."""
AsksPerson = Callable[[Mapping[str, Any], ToolContext], bool]
"""Returns True if a person must approve a call with these arguments, in this context."""
FindsChange = Callable[[Mapping[str, Any], ToolContext], FileChange]
"""Returns the change that a call with these arguments would make in a file, in this context."""
Commands = Callable[[Mapping[str, Any]], str]
"""Returns the command that a call with these arguments gives to a shell; empty if the call asks for more than that."""


class ToolResult(Struct, frozen=True, omit_defaults=True):
    """The result of a call: text for the model, and images for models that take them."""

    text: str
    is_error: bool = False
    images: tuple[Image, ...] = ()


class Tool(Struct, frozen=True, kw_only=True):
    """A function that a model may call. Calling the tool itself calls the function that it was made from."""

    name: str
    description: str
    schema: dict[str, object]
    """JSON Schema of its arguments: an object, without the context."""
    repeatable: bool
    """After a crash in the middle, it may be started again."""
    read_only: bool
    """It changes nothing."""
    timeout_s: float | None
    """None: the tool limits its time itself."""
    max_chars: int
    function: ToolFunction
    arguments: type[Struct]
    """The struct that the arguments are read into: a field per parameter."""
    context_parameter: str | None = None
    """The parameter that receives the context; no argument of a model has its name. None: no parameter receives it."""
    takes: Literal["parameters", "struct"] = "parameters"
    """How the function is called: with each argument by name, or with the context and one struct of all arguments."""
    approval: ApprovalMode | None = None
    """Whether a person must approve each call if the settings do not say; None: the default for its name counts."""
    asks: AsksPerson | None = None
    """Decides for each call whether a person must approve it, whatever the settings say; None: for no call."""
    commands: Commands | None = None
    """For a tool of shell commands: returns the command of a call. A person can make rules for no other tool."""
    changes: FindsChange | None = None
    """For a tool that changes one file: returns the change, which a person sees who is asked. It changes nothing."""
    answers: Literal["text", "json"] = "text"
    """json: a refusal is an object with `status` and `error`, as its other answers are objects."""
    hosted: bool = False
    """The model's provider carries it out: the session may use it, but it is not shown as one of our tools."""

    def __post_init__(self) -> None:
        """Refused: an argument under the name of the context. The one would overwrite the other."""
        if self.context_parameter in self.arguments.__struct_fields__:
            raise BadInput(f"{self.name}({self.context_parameter})", "must not be both the context and an argument")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function itself, unchecked and unbounded."""
        return self.function(*args, **kwargs)

    def read_arguments(self, raw: str) -> Struct:
        """The arguments that a model sent, decoded. Raises `BadInput` if they are not JSON or do not fit.

        Some models send an empty text for no arguments, and numbers, true and false in quotes.
        """
        try:
            given = _json_value(raw if raw.strip() else "{}")
            return read_params(self.arguments, given, "arguments", unquote=True).params
        except BadInput as error:
            raise BadInput(error.field, f"{error.problem}. {self.usage}") from None

    def needs_person(self, raw_arguments: str, context: ToolContext) -> bool:
        """True if `asks` requires a person's approval of this call; False if the call will be refused anyway."""
        try:
            return self.asks is not None and self.asks(named_arguments(self.read_arguments(raw_arguments)), context)
        except (FledgeError, OSError):
            return False

    def command(self, raw_arguments: str) -> str:
        """The shell command of this call; empty if it is not just a command, or will be refused anyway."""
        try:
            return "" if self.commands is None else self.commands(named_arguments(self.read_arguments(raw_arguments)))
        except BadInput:
            return ""

    def change(self, raw_arguments: str, context: ToolContext) -> FileChange | None:
        """The change that this call would make in a file; None for a tool of other calls."""
        if self.changes is None:
            return None
        try:
            return self.changes(named_arguments(self.read_arguments(raw_arguments)), context)
        except (FledgeError, OSError) as error:
            return refused_change(capped(_clean(error_words(error)), MAX_ERROR_CHARS))

    @property
    def takes_context(self) -> bool:
        """True if the function is given the context."""
        return self.takes == "struct" or self.context_parameter is not None

    async def call(self, raw_arguments: str, context: ToolContext) -> ToolResult:
        """Run the function with these arguments. Any exception becomes an error result; only a real stop is raised.

        A plain function runs in a thread; one that is stopped or out of time runs on there, and its result is dropped.
        """
        clock, loop = asyncio.timeout(None), asyncio.get_running_loop()
        ends_at = None if self.timeout_s is None else loop.time() + self.timeout_s
        try:
            arguments = self.read_arguments(raw_arguments)
            async with clock:
                # A call that waits for nothing is over before the loop turns: it needs no timer.
                timer = loop.call_soon(clock.reschedule, ends_at)
                try:
                    value = await self._run(self._with(arguments, context))
                finally:
                    timer.cancel()
            if isinstance(value, str):
                return ToolResult(capped(_clean(value), self.max_chars))
            value = _with_images(value)
            if isinstance(value, ToolResult) and value.images:
                return await asyncio.to_thread(self._told, value)  # digests of megabytes take their time
            return self._told(value)
        except BaseException as error:
            if is_stop(error):
                raise
            if isinstance(error, BadInput):
                return self.refused("error", error_words(error))
            return self._failed(self._why(error, clock))

    def refused(self, status: str, why: str) -> ToolResult:
        """A refusal, in the format of the tool's other answers."""
        if self.answers == "text":
            return self._failed(why)
        return ToolResult(
            msgspec.json.encode({"status": status, "error": capped(_clean(why), MAX_ERROR_CHARS)}).decode()
        )

    @property
    def usage(self) -> str:
        """Its arguments in one line, for error messages."""
        fields = struct_type(self.arguments).fields
        told = [f"{one.encode_name} ({described(one.type)}{', required' * one.required})" for one in fields]
        return f"It takes: {', '.join(told)}." if told else "It takes no arguments."

    def _with(self, arguments: Struct, context: ToolContext) -> Callable[[], Any]:
        """The function with its arguments, and the context if it takes that."""
        if self.takes == "struct":
            return partial(self.function, context, arguments)
        given = {} if self.context_parameter is None else {self.context_parameter: context}
        return partial(self.function, **named_arguments(arguments), **given)

    async def _run(self, call: Callable[[], Any]) -> Any:
        if is_async(self.function):
            return await call()
        value = await _in_thread(call)
        return await value if inspect.isawaitable(value) else value

    def _told(self, value: Any) -> ToolResult:
        if isinstance(value, ToolResult):
            text = capped(_clean(value.text), self.max_chars)
            return ToolResult(with_names(text, read_images(value.images)), value.is_error, value.images)
        try:
            text = msgspec.json.encode(value).decode()
        except (TypeError, ValueError, RecursionError) as error:
            return self._failed(f"its result cannot be written as JSON ({describe(error)})")
        return ToolResult(capped(text, self.max_chars))

    def _why(self, error: BaseException, clock: asyncio.Timeout) -> str:
        match error:
            case asyncio.CancelledError():  # of something that the tool waited for
                return "it was cancelled from inside"
            case TimeoutError() if clock.expired():
                return f"stopped after {self.timeout_s:g} s: it reached its timeout; its effects are unknown"
            case FledgeError() if error_words(error):
                return error_words(error)
            case _:
                return describe(error)

    def _failed(self, why: str) -> ToolResult:
        return ToolResult(capped(_clean(f"{self.name}: {why}"), MAX_ERROR_CHARS), is_error=True)


class DecoratedTool(Tool, Generic[P, R], frozen=True, kw_only=True):
    """A tool made by `@fledge.tool`: to a type checker, a call of it is a call of its function."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function itself, unchecked and unbounded."""
        result: R = self.function(*args, **kwargs)
        return result


ToolLike = Tool | ToolFunction
"""A tool, or a function that one is made of."""


@overload
def tool(function: Callable[P, R], /) -> DecoratedTool[P, R]: ...


@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    repeatable: bool = False,
    read_only: bool = False,
    timeout: float | None = TIMEOUT_S,
    max_chars: int = MAX_CHARS,
    approval: ApprovalMode | None = None,
    asks: AsksPerson | None = None,
) -> Callable[[Callable[P, R]], DecoratedTool[P, R]]: ...


def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    repeatable: bool = False,
    read_only: bool = False,
    timeout: float | None = TIMEOUT_S,
    max_chars: int = MAX_CHARS,
    approval: ApprovalMode | None = None,
    asks: AsksPerson | None = None,
) -> DecoratedTool[..., Any] | Callable[[Callable[..., Any]], DecoratedTool[..., Any]]:
    """Make a tool from a function with type hints: async or plain, a method, a partial, or an object with `__call__`.

    The model sees the function's name, its docstring, and its parameters in camelCase. The parameter section of the
    docstring (`Args:`, NumPy or Sphinx style) or `msgspec.Meta(description=…)` describes parameters. A parameter of the
    type `fledge.ToolContext` receives the context of the call. The function may return text, a `fledge.Image`, a list
    of texts and images, or a value that is written as JSON.

    - `read_only`: the tool changes nothing.
    - `repeatable`: after a crash in the middle the call may be started again. Read-only tools always may.
    - `approval="ask"`: a person approves each call, unless the settings say otherwise.
    - `asks`: a function that decides which calls a person must approve, whatever the settings say.
    - `timeout`: seconds a call may take. `max_chars`: the longest result that the model sees.

    Raises `BadInput` naming the parameter: one without a type, a type that JSON cannot express, `*args`, `**kwargs`,
    positional-only parameters, or a name that providers do not accept.

    >>> @fledge.tool
    ... def add(a: int, b: int) -> int:
    ...     "Add two numbers."
    ...     return a + b
    >>> add(2, 3), add.name, add.description
    (5, 'add', 'Add two numbers.')
    """

    def made(function: ToolFunction) -> DecoratedTool[..., Any]:
        if not callable(function):
            raise BadInput("function", "must be a function, a method or another callable", function)
        own = name if name is not None else name_of(function)
        if not _NAME.fullmatch(own):
            raise BadInput("name", "must be 1–64 letters, digits, _ or -", own)
        if timeout is not None and not timeout > 0:
            raise BadInput("timeout", "must be seconds, more than 0, or None", timeout)
        if approval not in (None, "ask", "never"):
            raise BadInput("approval", "must be ask, never, or None to leave it to the settings", approval)
        words, described_parameters = read_docstring(function)
        arguments, context_parameter = arguments_of(own, function, ToolContext)
        return DecoratedTool(
            name=own,
            description=words if description is None else description,
            schema=schema_of(arguments, described_parameters),
            repeatable=repeatable or read_only,
            read_only=read_only,
            timeout_s=timeout,
            max_chars=max_chars,
            function=function,
            arguments=arguments,
            context_parameter=context_parameter,
            approval=approval,
            asks=asks,
        )

    return made if function is None else made(function)


def as_tool(given: object) -> Tool:
    """A tool, or the tool that `@fledge.tool` makes of a function. Refused, by `BadInput`: anything else."""
    if isinstance(given, Tool):
        return given
    if not callable(given) or isinstance(given, type):
        raise BadInput("tools", "must be functions, or tools made with @fledge.tool", given)
    return tool(given)


def tool_taking(
    arguments: type[S],
    function: Callable[[ToolContext, S], Awaitable[str]],
    *,
    name: str,
    description: str,
    timeout: float | None = TIMEOUT_S,
) -> Tool:
    """A repeatable tool whose arguments are the fields of a struct: the function gets the context and that struct, and
    answers JSON."""
    return Tool(
        name=name,
        description=description,
        schema=schema_of(arguments, {}),
        repeatable=True,
        read_only=False,
        timeout_s=timeout,
        max_chars=MAX_CHARS,
        function=function,
        arguments=arguments,
        takes="struct",
        answers="json",
    )


def answering_json(made: Tool) -> Tool:
    """The same tool, but a refusal of its arguments is a JSON object with `status` and `error`."""
    return replace(made, answers="json")


def _with_images(value: Any) -> Any:
    """A `ToolResult` if the value is an image, or a list of texts and images; any other value as it is."""
    parts = value if isinstance(value, list | tuple) else [value]
    images = tuple(part for part in parts if isinstance(part, Image))
    words = [part for part in parts if not isinstance(part, Image)]
    if not images or not all(isinstance(part, str) for part in words):
        return value
    return ToolResult("\n".join(words), images=images)


def capped(text: str, limit: int) -> str:
    """The first `limit` characters, and a line that says how much is missing if some is."""
    if len(text) <= limit:
        return text
    return f"{text[:limit]}\n[cut: {len(text) - limit} of {len(text)} characters are not shown]"


# ---- running ---------------------------------------------------------------------------------------------------------


def named_arguments(arguments: Struct) -> dict[str, Any]:
    """The arguments that a tool has read, by the names of its parameters."""
    return {name: getattr(arguments, name) for name in arguments.__struct_fields__}


def _json_value(raw: str) -> object:
    """The JSON value in a text. Raises BadInput that says where it is not JSON."""
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        words = error_words(error)
        at = _BYTE.search(words)
        why = f"malformed at byte {at[1]}" if at else "cut off" if "truncated" in words else "not readable as JSON"
        raise BadInput("arguments", f"must be one JSON object; this is {why}") from None


async def _in_thread(work: Callable[[], Any]) -> Any:
    def run() -> Any:
        try:
            return work()
        except StopIteration as error:
            # A future cannot carry it; the caller would wait for ever.
            raise RuntimeError("StopIteration") from error

    inside = contextvars.copy_context()
    future = asyncio.get_running_loop().run_in_executor(None, inside.run, run)
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        # A thread that is nearly done (a write, an edit) is over before the call is; its late error is of no interest.
        future.add_done_callback(lambda done: done.cancelled() or done.exception())
        await asyncio.wait({future}, timeout=THREAD_GRACE_S)
        raise


def _clean(text: str) -> str:
    # No store takes lone surrogates, and not every database takes NULs.
    if text.isascii() and "\x00" not in text:
        return text
    return text.encode("utf-8", "replace").decode().replace("\x00", "␀")
