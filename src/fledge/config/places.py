"""Where settings are looked for, and whether a project's are trusted.

The user's folder (`$FLEDGE_CONFIG`, else `~/.config/fledge`) holds `fledge.json5` and `agents/*.md`; a project's folder
holds the same. A project's count in full only once a person has trusted exactly these files: one changed byte, and they
may only tighten again until they are trusted anew.
"""

import hashlib
import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from fledge.config.check import Document, Loaded, check
from fledge.config.layers import merge, with_settings
from fledge.config.load import read
from fledge.config.profiles_md import profile_files, read_profiles
from fledge.config.tighten import tightened
from fledge.errors import BadInput

FILE = "fledge.json5"
AGENTS = "agents"
TRUSTED = "trusted.json"


class Found(Struct, frozen=True):
    """The settings that apply in a folder, and where they came from."""

    loaded: Loaded
    sources: tuple[str, ...]
    """Files that exist and were read, the weakest first."""
    trusted: bool
    """False only if the project has settings of its own that nobody has trusted."""
    left_out: tuple[str, ...] = ()
    """What the project's files say and does not count until they are trusted."""


def user_folder(env: Mapping[str, str] | None = None) -> Path:
    """Where the user's own settings are."""
    given = os.environ if env is None else env
    if given.get("FLEDGE_CONFIG"):
        return Path(given["FLEDGE_CONFIG"]).expanduser()
    base = given.get("XDG_CONFIG_HOME") or "~/.config"
    return Path(base).expanduser() / "fledge"


def discover(project: Path, settings: Sequence[str] = (), user: Path | None = None) -> Found:
    """The settings for work in this folder: defaults, the user's, the project's as far as trusted, then single ones.

    Refused, by the file and the key: what no setting is, or may be.
    """
    user = user or user_folder()
    try:
        return _discover(project, settings, user)
    except BadInput as error:
        raise _blamed(error, (project / FILE, user / FILE)) from None


def _blamed(error: BadInput, files: Sequence[Path]) -> BadInput:
    """The error, with the file that it is in; as it was if it is in none of them alone."""
    for path in files:
        try:
            check(read(path) or {}, str(path))
        except BadInput as own:
            if own.field == error.field and not own.field.startswith(str(path)):
                return BadInput(f"{path}: {own.field}", own.expected, own.got)
        profile = re.match(r"agents\.list\.([\w-]+)\.", error.field)
        if profile is not None and (path.parent / AGENTS / f"{profile[1]}.md").is_file():
            return BadInput(f"{path.parent / AGENTS / profile[1]}.md: {error.field}", error.expected, error.got)
    return error


def _discover(project: Path, settings: Sequence[str], user: Path) -> Found:
    sources: list[str] = []
    own = _layers(user, sources)
    if project.resolve() == user.resolve():
        return Found(with_settings(own, settings), tuple(sources), True)
    theirs = _layers(project, sources)
    if not theirs or is_trusted(project, user):
        return Found(with_settings(merge(own, theirs), settings), tuple(sources), True)
    allowed = tightened(check(own, str(user / FILE)).config, theirs, str(project / FILE))
    loaded = with_settings(merge(own, allowed.document), settings)
    if allowed.left_out:
        shown = ", ".join(allowed.left_out[:5]) + (" …" if len(allowed.left_out) > 5 else "")
        words = (
            f"{project}: not trusted, so these settings of it do not count: {shown}. `fledge trust` shows and trusts"
        )
        loaded = Loaded(loaded.config, (*loaded.warnings, words))
    return Found(loaded, tuple(sources), False, allowed.left_out)


def _layers(folder: Path, sources: list[str]) -> Document:
    profiles = read_profiles(folder / AGENTS)
    if profiles:
        sources.append(str(folder / AGENTS))
    written = read(folder / FILE)
    if written is not None:
        sources.append(str(folder / FILE))
    return merge(profiles, written or {})


# ---- trust -----------------------------------------------------------------------------------------------------------


def digest(project: Path) -> str | None:
    """What trust is bound to: the names and bytes of the project's own settings; None if it has none."""
    parts: list[tuple[str, bytes]] = []
    path = project / FILE
    if path.is_file():
        parts.append((FILE, path.read_bytes()))
    parts += [(f"{AGENTS}/{one.name}", text.encode()) for one, text in profile_files(project / AGENTS)]
    if not parts:
        return None
    whole = hashlib.sha256()
    for name, content in parts:
        whole.update(f"{name}\0{len(content)}\0".encode() + content)
    return whole.hexdigest()


def is_trusted(project: Path, user: Path | None = None) -> bool:
    """True if a person has trusted the project's settings as they are now."""
    found = digest(project)
    return found is not None and _trusted(user or user_folder()).get(str(project.resolve())) == found


def trust(project: Path, user: Path | None = None) -> None:
    """Trust the project's settings as they are now. Refused: a project without any, or with settings that are wrong."""
    user = user or user_folder()
    found = digest(project)
    if found is None:
        raise BadInput(str(project), f"has no {FILE} and no {AGENTS}/*.md: there is nothing to trust")
    check(merge(read_profiles(project / AGENTS), read(project / FILE) or {}), str(project / FILE))
    _save(user, {**_trusted(user), str(project.resolve()): found})


def revoke(project: Path, user: Path | None = None) -> bool:
    """Trust the project no more; False if it was not trusted."""
    user = user or user_folder()
    held = _trusted(user)
    if held.pop(str(project.resolve()), None) is None:
        return False
    _save(user, held)
    return True


def trusted_projects(user: Path | None = None) -> list[str]:
    """The folders that were trusted, in the order of their names; their files may have changed since."""
    return sorted(_trusted(user or user_folder()))


def _trusted(user: Path) -> dict[str, str]:
    path = user / TRUSTED
    try:
        held = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise BadInput(str(path), "must be a readable JSON object; remove it to trust nothing", str(error)) from None
    if not isinstance(held, dict) or not all(isinstance(value, str) for value in held.values()):
        raise BadInput(str(path), "must be a JSON object of folders and digests; remove it to trust nothing")
    return held


def _save(user: Path, held: Mapping[str, str]) -> None:
    user.mkdir(parents=True, exist_ok=True, mode=0o700)
    new = user / f".{TRUSTED}.{os.getpid()}"
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        json.dump(held, file, indent=1, sort_keys=True)
    new.replace(user / TRUSTED)
