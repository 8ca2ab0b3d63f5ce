"""Session keys: how a conversation is named, and how a name is read back.

Keys are flat at any depth; a child's parent is stored, never read out of a key. This file knows nothing of stores.
"""

import hashlib
import re
import unicodedata
from typing import Final, Literal

from fledge.core.value import Value
from fledge.errors import BadInput

SessionKeyKind = Literal["main", "named", "subagent", "acp"]

ListKind = Literal["main", "named", "subagent", "acp", "group", "cron", "hook", "node"]

AGENT_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@+-]{0,127}")
FOLDER_CHARS: Final = 32
"""How much of a folder's name the name of its conversation has."""


class SessionKey(Value):
    """A key taken apart. `str()` puts it together again."""

    agent_id: str
    kind: SessionKeyKind
    name: str

    def __str__(self) -> str:
        rest = f"{self.kind}:{self.name}" if self.kind in ("subagent", "acp") else self.name
        return f"agent:{self.agent_id}:{rest}"


def check_agent_id(value: str, field: str = "agentId") -> str:
    """The id in lower case; refused unless it is a plain word of at most 64 characters."""
    if not isinstance(value, str) or not AGENT_ID.fullmatch(value.strip()):
        raise BadInput(field, "must be 1 to 64 letters, digits, '-' or '_', starting with a letter or digit", value)
    return value.strip().lower()


def main_key(agent_id: str = "main") -> str:
    """The key of the main conversation that an agent has outside of any project."""
    return f"agent:{check_agent_id(agent_id)}:main"


def project_key(folder: str, agent_id: str = "main") -> str:
    """The key of an agent's main conversation in a project folder, given by its real path: the folder's name in letters
    a to z, digits and dashes, and four digits of the path's digest, so that folders of the same name differ."""
    plain = unicodedata.normalize("NFKD", folder_name(folder)).encode("ascii", "ignore").decode().lower()
    name = _dashed(plain) or "folder"
    digest = hashlib.sha256(folder.encode()).hexdigest()[:4]
    return f"agent:{check_agent_id(agent_id)}:{name}-{digest}"


def attached_folder(key: str) -> str:
    """The name of the folder with the files that came with messages of a session: its name in letters a to z, digits
    and dashes, and twelve digits of the key's digest, so that no two sessions share one."""
    plain = _dashed(parse_key(key).name.lower()) or "session"
    return f"{plain}-{hashlib.sha256(key.encode()).hexdigest()[:12]}"


def _dashed(text: str) -> str:
    """The beginning of a text in lower case, in letters a to z, digits and dashes."""
    return re.sub("[^a-z0-9]+", "-", text).strip("-")[:FOLDER_CHARS].rstrip("-")


def conversation_name(key: str) -> str:
    """The name of a conversation for people; the agent stands before it unless it is the main one."""
    parsed = parse_key(key)
    return parsed.name if parsed.agent_id == "main" else f"{parsed.agent_id}:{parsed.name}"


def is_main_key(key: str, folder: str = "") -> bool:
    """True of the key of a main conversation of its agent: the one called `main`, or the one of this project folder."""
    agent_id = agent_of(key)
    return key == main_key(agent_id) or (folder != "" and key == project_key(folder, agent_id))


def folder_name(folder: str) -> str:
    """The last part of a path."""
    return folder.rpartition("/")[2]


def child_key(agent_id: str, unique: str) -> str:
    """The key of a child of the target agent; `unique` comes from the shell."""
    return f"agent:{check_agent_id(agent_id)}:subagent:{unique}"


def parse_key(text: str, default_agent: str = "main") -> SessionKey:
    """Read a key; surrounding space and letter case of the fixed parts are forgiven, and `main` alone is the main key.

    Refused: anything that does not start with `agent:`, lacks a part, or carries control characters.
    """
    value = text.strip() if isinstance(text, str) else ""
    if value.lower() == "main":
        return SessionKey(default_agent, "main", "main")
    head, _, rest = value.partition(":")
    agent, _, name = rest.partition(":")
    if head.lower() != "agent" or not AGENT_ID.fullmatch(agent) or not _NAME.fullmatch(name):
        raise BadInput("sessionKey", "must look like agent:<id>:main or agent:<id>:subagent:<uuid>", text)
    agent_id = agent.lower()
    first, _, tail = name.partition(":")
    match first.lower():
        case "main" if not tail:
            return SessionKey(agent_id, "main", "main")
        case "subagent" | "acp" as kind if tail:
            return SessionKey(agent_id, kind, tail)
        case _:
            return SessionKey(agent_id, "named", name)


def agent_of(key: str) -> str:
    """The agent id inside a key."""
    return parse_key(key).agent_id


def is_child_key(key: str) -> bool:
    """True of keys that name a spawned session."""
    return parse_key(key).kind in ("subagent", "acp")


def list_kind(key: str, is_main: bool = False) -> ListKind:
    """The kind of a session in lists: by its key, in which groups of channels and jobs are named; a main conversation
    is `main`, whatever its key."""
    if is_main:
        return "main"
    parsed = parse_key(key)
    if parsed.kind != "named":
        return parsed.kind
    parts = parsed.name.lower().split(":")[:-1]
    if "group" in parts or "channel" in parts:
        return "group"
    match parts[:1]:
        case ["cron" | "hook" | "node" as kind]:
            return kind
        case _:
            return "named"


NAME_CHARS: Final = 110
"""How much of a label, a task or another name every list and line shows."""
SHORT_CHARS: Final = 8


def short_id(unique: str) -> str:
    """The eight characters by which people tell a uuid from others: its first or, where it begins with the time
    (version 7) and so with what is the same for a minute, its last."""
    return unique[-SHORT_CHARS:] if unique[14:15] == "7" else unique[:SHORT_CHARS]


def is_called(unique: str, word: str) -> bool:
    """True if the word is the beginning of a uuid, or of its short form."""
    return unique.casefold().startswith(word.casefold()) or short_id(unique).casefold().startswith(word.casefold())
