"""Where settings are looked for, and whether a project's settings are trusted.

The user's folder (`$FLEDGE_CONFIG`, else `~/.config/fledge`) holds `fledge.json5` and `agents/*.md`; a project's folder
holds the same. A project's settings count in full only once a person has trusted exactly these files: after a change of
one byte they may only make things tighter, until they are trusted again. The change can be shown, because
`trusted_text` keeps the trusted text.
"""

import hashlib
import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from fledge.config import trusted_text
from fledge.config.check import Loaded, SettingsDocument, check
from fledge.config.layers import layer_of, merge, with_settings
from fledge.config.load import contents, document_of
from fledge.config.profiles_md import SettingsFile, profile_files, profiles_of
from fledge.config.untrusted_settings import tightened
from fledge.core.redact import error_words
from fledge.core.value import Value
from fledge.errors import BadInput
from fledge.plain_file import read_plain, write_private

FILE = "fledge.json5"
AGENTS = "agents"
TRUSTED = "trusted.json"
Memory = TypeVar("Memory")


class FoundSettings(Value):
    """The settings that apply in a folder, and where they came from."""

    loaded: Loaded
    sources: tuple[str, ...]
    """Files that exist and were read, the weakest first."""
    trusted: bool
    """False only if the project has settings of its own that no person has trusted as they are now."""
    left_out: tuple[str, ...] = ()
    """The keys of the project's settings that do not count until its files are trusted."""
    changed: bool = False
    """True if a person has trusted another version of the project's settings."""


def user_folder(env: Mapping[str, str] | None = None) -> Path:
    """Where the user's own settings are."""
    given = os.environ if env is None else env
    if given.get("FLEDGE_CONFIG"):
        return Path(given["FLEDGE_CONFIG"]).expanduser()
    base = given.get("XDG_CONFIG_HOME") or "~/.config"
    return Path(base).expanduser() / "fledge"


def read_memory(path: Path, kind: type[Memory], expected: str, most: int = -1) -> Memory | None:
    """The value in a file of the user's folder; None if there is no file. Refused: a file that cannot be read, or that
    holds no value of this kind."""
    try:
        return msgspec.json.decode(read_plain(path, most), type=kind)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, msgspec.MsgspecError) as error:
        raise BadInput(str(path), f"must be {expected}", error_words(error)) from None


class Written(Value):
    """The settings files of one folder. They are read once, so that trust is checked for the bytes that are parsed."""

    folder: Path
    settings: bytes | None
    """Of `fledge.json5`; None if there is none."""
    agents: tuple[SettingsFile, ...]
    """Of `agents/*.md`, by name."""

    @property
    def place(self) -> str:
        """The real path of the folder, the key under which its trust is stored."""
        return str(self.folder.resolve())

    @property
    def names(self) -> list[str]:
        """The files, relative to the folder."""
        return [name for name, _ in self.files]

    @property
    def sources(self) -> tuple[str, ...]:
        """Where settings come from, the weakest first."""
        agents = [str(self.folder / AGENTS)] if self.agents else []
        return (*agents, *([] if self.settings is None else [str(self.folder / FILE)]))

    @property
    def files(self) -> list[tuple[str, bytes]]:
        """Their names, relative to the folder, and their bytes."""
        own = [] if self.settings is None else [(FILE, self.settings)]
        return [*own, *((f"{AGENTS}/{path.name}", raw) for path, raw in self.agents)]

    @property
    def digest(self) -> str | None:
        """The hash of the names and bytes of the files, to which trust is bound; None if there are no files."""
        files = self.files
        if not files:
            return None
        whole = hashlib.sha256()
        for name, content in files:
            whole.update(f"{name}\0{len(content)}\0".encode() + content)
        return whole.hexdigest()

    @property
    def document(self) -> SettingsDocument:
        """One layer of settings. Refused, naming the file: a file that cannot be parsed."""
        return merge(profiles_of(self.agents), self.own)

    @property
    def own(self) -> SettingsDocument:
        """The settings in `fledge.json5`; none without this file."""
        return {} if self.settings is None else document_of(self.settings, self.folder / FILE)


def read_written(folder: Path, is_users: bool = False) -> Written:
    """The settings files of a folder, as they are now. Refused: a file that cannot be read, too many profiles; unless
    the folder is the user's own, also a link that leads out of it."""
    return Written(folder, contents(folder / FILE, not is_users), tuple(profile_files(folder / AGENTS)))


def discover(
    project: Path, settings: Sequence[str] = (), user: Path | None = None, written: Written | None = None
) -> FoundSettings:
    """The settings for work in this folder: defaults, the user's, the project's as far as trusted, then single ones.

    `written` are the project's files, if they have been read. Refused, naming the file and the key: an unknown setting,
    or a value that is not allowed.
    """
    own = read_written(user or user_folder(), is_users=True)
    theirs = written or read_written(project)
    try:
        return _discover(own, theirs, settings)
    except BadInput as error:
        raise _blamed(error, (theirs, own)) from None


def _blamed(error: BadInput, places: Sequence[Written]) -> BadInput:
    """The error, with the name of the file that it is in; unchanged if no single file has it."""
    for written in places:
        path = written.folder / FILE
        try:
            check(written.own, str(path))
        except BadInput as own:
            if own.field == error.field and not own.field.startswith(str(path)):
                return BadInput(f"{path}: {own.field}", own.expected, own.got)
        profile = re.match(r"agents\.list\.([\w-]+)\.", error.field)
        if profile is not None and f"{AGENTS}/{profile[1]}.md" in written.names:
            return BadInput(f"{written.folder / AGENTS / profile[1]}.md: {error.field}", error.expected, error.got)
    return error


def _discover(own: Written, theirs: Written, settings: Sequence[str]) -> FoundSettings:
    project, user = theirs.folder, own.folder
    name, place, held, single = str(user / FILE), str(project / FILE), own.document, ("--set", layer_of(settings))
    if project.resolve() == user.resolve():
        theirs = Written(project, None, ())  # the same files, which count in full
    over, sources = theirs.document, (*own.sources, *theirs.sources)
    left_out: tuple[str, ...] = ()
    counts = not over or is_trusted(theirs, user)
    if not counts:
        check(held, name)  # its errors name the user's file
        # Single settings are part of the base: one for all agents must hold against a project's own for one agent.
        over, left_out = tightened(with_settings(held, settings).config, over, place)
    loaded = with_settings(merge(held, over), settings)
    changed = not counts and theirs.place in _trusted(user)
    warnings = loaded.warnings
    if left_out:
        shown = ", ".join(left_out[:5]) + (" …" if len(left_out) > 5 else "")
        why = "changed since it was trusted" if changed else "not trusted"
        how = "`fledge trust --show` shows " + ("the difference" if changed else "what that lets in")
        words = f"{project}: {why}, so these settings of it do not count: {shown}. {how}, `fledge trust` trusts it"
        warnings = (*warnings, words)
    layers = ((name, held), (place, over), single)
    return FoundSettings(Loaded(loaded.config, warnings, layers), sources, counts, left_out, changed)


# ---- trust -----------------------------------------------------------------------------------------------------------


def is_trusted(written: Written, user: Path | None = None) -> bool:
    """True if a person has trusted the project's settings as they were `written`."""
    found = written.digest
    return found is not None and _trusted(user or user_folder()).get(written.place) == found


def trust(written: Written, user: Path | None = None) -> None:
    """Trust the project's settings as they were `written`. Refused: a project without any, or with settings that are
    wrong."""
    user, found = user or user_folder(), written.digest
    if found is None:
        raise BadInput(str(written.folder), f"has no {FILE} and no {AGENTS}/*.md: there is nothing to trust")
    check(written.document, str(written.folder / FILE))
    before = _trusted(user)
    trusted_text.keep(user, found, written.files)
    _save(user, before | {written.place: found}, before.get(written.place))


def revoke(project: Path, user: Path | None = None) -> bool:
    """Withdraw the trust in the project; False if it was not trusted."""
    user = user or user_folder()
    held = _trusted(user)
    digest = held.pop(str(project.resolve()), None)
    if digest is None:
        return False
    _save(user, held, digest)
    return True


def difference(written: Written, user: Path | None = None) -> list[str]:
    """How the project's settings, as they were `written`, differ from those that were trusted; empty if none were.
    Lines that are safe to print."""
    user = user or user_folder()
    digest = _trusted(user).get(written.place)
    return [] if digest is None or digest == written.digest else trusted_text.difference(user, digest, written.files)


def trusted_projects(user: Path | None = None) -> list[str]:
    """The folders that were trusted, in the order of their names; their files may have changed since."""
    return sorted(_trusted(user or user_folder()))


def _trusted(user: Path) -> dict[str, str]:
    expected = "a readable JSON object of folders and digests; remove it to trust nothing"
    return read_memory(user / TRUSTED, dict[str, str], expected) or {}


def _save(user: Path, held: Mapping[str, str], replaced: str | None) -> None:
    """Store what is trusted now, and remove the text of a replaced version that is not trusted for any project."""
    write_private(user / TRUSTED, json.dumps(held, indent=1, sort_keys=True))
    if replaced is not None and replaced not in held.values():
        trusted_text.forget(user, replaced)
