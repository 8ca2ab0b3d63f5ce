"""Parameters that several verbs take."""

from typing import TYPE_CHECKING, Annotated, Final

from msgspec import Meta

from fledge.api.views import session_key
from fledge.commands.table import Params
from fledge.core.params import formerly, read_params
from fledge.errors import BadInput

if TYPE_CHECKING:
    from fledge.orchestrator.spawn_params import SpawnBudget

LONGEST_WAIT_S: Final = 600.0
"""No request is held longer than this."""

SessionKeyParam = Annotated[
    str, Meta(min_length=1, max_length=256, description="a session key; `main` is the main conversation")
]
MOST_WORDS: Final = 1_000_000
"""The most characters of a message."""
WordsParam = Annotated[str, Meta(min_length=1, max_length=MOST_WORDS)]
SessionMessage = Annotated[str, Meta(max_length=MOST_WORDS, description="empty only beside images or attachments")]
WaitMs = Annotated[int, Meta(ge=0, le=int(LONGEST_WAIT_S * 1000), description="how long to wait for it")]
WaitSeconds = Annotated[float, Meta(ge=0, le=LONGEST_WAIT_S, description="how long to wait for the answer")]
SessionName = Annotated[SessionKeyParam, formerly("sessionKey", "key")]
RunId = Annotated[str, Meta(min_length=1, max_length=256, description="a run id"), formerly("runId")]
Count = Annotated[int, Meta(ge=1, le=1000)]
ShortText = Annotated[str, Meta(max_length=256)]
DefaultModel = Annotated[
    str, Meta(max_length=256, description="the model where the settings would use agents.defaults.model")
]
TargetParam = Annotated[
    str, Meta(min_length=1, max_length=256, description="a run id, a session key, a label, `#2`, or `last`")
]


FolderParam = Annotated[
    str, Meta(max_length=4096, description="the project folder of the person who asks, by its real path; empty: none")
]


class Nothing(Params):
    """No parameters."""


class AskerParams(Params):
    """The session in which words for a run, such as `last`, are read (`looking.session_of`)."""

    requester: Annotated[SessionKeyParam, formerly("sessionKey")] = "main"
    """Words such as `last` mean runs of this session."""
    folder: FolderParam = ""
    """Instead of `requester`: words mean runs of this folder's conversation, or of `main` until that conversation has
    begun."""


class One(AskerParams):
    """One run."""

    target: TargetParam


class InSession(Params):
    """A session, the main conversation unless another is named."""

    session: SessionName = "main"

    @property
    def key(self) -> str:
        """The whole session key."""
        return session_key(self.session, "session")


class NamedSession(InSession):
    """A session."""

    session: SessionName


class InWorkspace(Params):
    """Documents of a workspace."""

    workspace: Annotated[str, Meta(min_length=1, max_length=4096, description="its real path")]


def budget_of_words(words: str) -> "SpawnBudget":
    """A budget that a person wrote, such as `turns=20,usd=0.5`."""
    from fledge.orchestrator.spawn_params import (
        SpawnBudget,  # loads all settings, which a verb that looks does not need
    )

    ceilings: dict[str, object] = {}
    for part in words.split(","):
        name, sign, number = part.partition("=")
        try:
            ceilings[name.strip()] = int(number) if number.strip().isdecimal() else float(number)
        except ValueError:
            sign = ""
        if not sign:
            raise BadInput("budget", "must be written like turns=20 or tokens=50000,usd=0.5", words)
    return read_params(SpawnBudget, ceilings, "budget").params
