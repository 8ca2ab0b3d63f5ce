"""The model protocol: a request goes in, a stream of events comes out. Nothing here knows a provider or a transport.

A stream ends with exactly one `ReplyEnded` or one `Broke`. Provider trouble is an event, never an exception; an
exception out of `stream` is a bug. A stream that is closed early (its consumer was cancelled) leaves no connection
behind.
"""

from collections.abc import AsyncIterator, Mapping
from typing import Final, Literal, Protocol, get_args

from fledge.core.asking import ProviderErrorKind as ProviderErrorKind
from fledge.core.asking import StopReason as StopReason
from fledge.core.images import ImageEntry
from fledge.core.schema import JsonObject
from fledge.core.value import Value

Thinking = Literal["off", "minimal", "low", "medium", "high", "xhigh", "adaptive"]
"""How much a model thinks: the nearest level that it has. `adaptive`: it decides itself, or `medium` if it cannot."""
LEVELS: Final[tuple[Thinking, ...]] = get_args(Thinking)


# ---- the request -----------------------------------------------------------------------------------------------------


class Call(Value, tag="call"):
    """The model wants a tool to be run. `id` is the provider's and may repeat; `arguments` is raw JSON text."""

    id: str
    name: str
    arguments: str


class UserMessage(Value, tag="user", omit_defaults=True):
    """A message to the model: from a person, another agent, or the system."""

    text: str
    images: tuple[ImageEntry, ...] = ()
    """Images that came with it. The text names each of them, for models that take none."""


class AssistantMessage(Value, tag="assistant", omit_defaults=True):
    """A reply of the model: its text, and its tool calls."""

    text: str = ""
    calls: tuple[Call, ...] = ()
    thinking: str = ""
    opaque: str = ""
    """Data that its provider wants back with it (`opaque.py`)."""


class ToolMessage(Value, tag="tool", omit_defaults=True):
    """The result of one tool call."""

    call_id: str
    name: str
    text: str
    is_error: bool = False
    images: tuple[ImageEntry, ...] = ()
    """As in a `UserMessage`."""


ModelMessage = UserMessage | AssistantMessage | ToolMessage


class ToolSpec(Value):
    """A tool as the model sees it."""

    name: str
    description: str
    schema: JsonObject
    """JSON Schema of its arguments: an object."""


class Request(Value, kw_only=True):
    """One request to a model. Each tool message answers a call of the assistant message before it."""

    model: str
    """The provider's own name for it, without our provider prefix."""
    system: str = ""
    messages: tuple[ModelMessage, ...]
    tools: tuple[ToolSpec, ...] = ()
    search: bool = False
    """The provider may search the web for it, if its model can."""
    thinking: Thinking = "off"
    max_tokens: int = 8192
    images: Mapping[str, bytes] = {}
    """The bytes of every image in the messages, by digest."""


# ---- the reply -------------------------------------------------------------------------------------------------------


class Text(Value, tag="text"):
    """More words of the reply."""

    text: str


class Thought(Value, tag="thought"):
    """More of the model's thinking."""

    text: str


class Opaque(Value, tag="opaque"):
    """Data that the provider wants back with this reply (`opaque.py`); at most once, at the end."""

    data: str


class Usage(Value, tag="usage", omit_defaults=True):
    """Tokens of this step, as the provider counted them. Input excludes tokens that the cache served or stored."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    """How many of the output tokens were thinking, where the provider says so."""
    searches: int = 0
    """Searches of the web that the provider did."""


class ReplyEnded(Value, tag="ended", omit_defaults=True):
    """The end of the reply. `model` is the one that really answered, as the provider names it."""

    stop: StopReason
    model: str
    dropped: str = ""
    """Names of tools whose calls the token limit cut in the middle of their arguments: those calls are not yielded."""


class Broke(Value, tag="broke", omit_defaults=True):
    """There will be no reply. The events before this one in the stream must not be used."""

    trouble: ProviderErrorKind
    message: str
    retry_after_s: float | None = None
    status: int | None = None
    remedy: str = ""
    """The change that the user must make before another try can help; empty: none is known."""

    @property
    def words(self) -> str:
        """The error, and the change that the user must make, if one is known."""
        return f"{self.message}; {self.remedy}" if self.remedy else self.message


ModelEvent = Text | Thought | Opaque | Call | Usage | ReplyEnded | Broke


class Model(Protocol):
    """Something that answers requests."""

    def stream(self, request: Request) -> AsyncIterator[ModelEvent]:
        """Answer the request. Must not raise for provider trouble; ends with one `ReplyEnded` or one `Broke`.

        Whole calls are events: a call is never yielded in pieces.
        """

    async def close(self) -> None:
        """Close the connections."""
