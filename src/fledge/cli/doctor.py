"""`fledge doctor`: checks for everything that could keep fledge from working here, each with a remedy.

Every check runs, whatever the others find; only those of provider, key and call need earlier ones to pass. The call
asks the chosen model for one word, unless `--offline` is given: only a call shows every refusal. Nothing is changed,
and no key is shown.
"""

import asyncio
import os
import shlex
import shutil
import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Literal

from msgspec import Struct

from fledge.cli.printing import CommandOutput
from fledge.cli.where import Where
from fledge.config import Config
from fledge.config.places import discover, user_folder
from fledge.config.workspaces import accepted
from fledge.core.cluster import Member, differences, is_alive
from fledge.core.protected import is_broad, is_within
from fledge.egress import Environment, proxy_for, tls_context
from fledge.errors import FledgeError, Refused, StoreLocked
from fledge.models.base import Broke, ProviderErrorKind, Request, ToolSpec, Usage, UserMessage
from fledge.models.catalog import Catalog
from fledge.models.choosing import models_request
from fledge.models.keys import SecretKey
from fledge.models.names import Registry
from fledge.models.providers import Provider, base_url_of, key_of, needed_key
from fledge.own_code import keep_out
from fledge.runtime.model_choice import choose_by_key, settled_model
from fledge.runtime.model_settings import configured_catalog, configured_registry
from fledge.store.addresses import open_server, shown
from fledge.store.files import DATABASE
from fledge.store.sqlite import SqliteStore
from fledge.tools.sandbox import find_sandbox
from fledge.tools.set_aside import FOLDER, kept_in

PATIENCE_S = 5.0
SKEW_S = 300.0
"""A clock further off than this breaks signatures and certificates."""
SERVER_SKEW_S = 2.0
"""A clock further off than this from the store's makes the times of runs differ by machine."""
LOW_SPACE = 200 * 1024 * 1024
CALL_S = 60.0
CALL_TOKENS = 64
ASKED = "Answer with the word ready."
OFFERED = ToolSpec("read", "Read a file.", {"type": "object", "properties": {"path": {"type": "string"}}})
_REMEDIES: Mapping[ProviderErrorKind, str] = {
    "auth": "correct the key",
    "quota": "add credit to the account, or name another model",
    "retryable": "wait a little, then run fledge doctor again",
    "interrupted": "check the network and the proxy, then run fledge doctor again",
    "overflow": "this model has no room for tools: name another",
    "refused": "the provider's policy refuses a harmless request: ask its support, or name another model",
    "bad_request": "the model may not take tools, or the server speaks another protocol: name another, or set {api}",
}
"""The remedy for each kind of refusal, used where the refusal itself names none."""
ELSEWHERE = "start in a folder of its own, or let agents work here"


class Finding(Struct, frozen=True):
    """The finding of one check, on one line, and the remedy if there is a problem."""

    name: str
    state: Literal["ok", "warn", "fail"]
    words: str
    remedy: str = ""


def report(where: Where, model: str | None, offline: bool) -> CommandOutput:
    """The findings for this folder, as lines for people; exit code 1 if one of them is a failure."""
    examining = examine(Path.cwd(), where.state, os.environ, model, offline=offline, store=where.store)
    findings = asyncio.run(examining)
    return CommandOutput(lines(findings), None, int(any(one.state == "fail" for one in findings)))


async def examine(
    folder: Path,
    state: Path,
    env: Environment,
    model: str | None = None,
    *,
    offline: bool = False,
    store: str = "",
) -> list[Finding]:
    """The findings of every check that can run here; `offline`: without a request to the provider or the model.
    `store`: the address of a store on a server."""
    findings: list[Finding] = []
    config = Config()
    try:
        found = discover(folder)
        config = found.loaded.config
        warned = [Finding("settings", "warn", words) for words in found.loaded.warnings]
        source = ", ".join(found.sources) or "no file: everything at its default"
        findings += warned or [Finding("settings", "ok", source)]
    except FledgeError as error:
        findings.append(
            Finding("settings", "fail", str(error), "correct that line; `fledge docs config` lists all settings")
        )
    models, stored = (
        await _models(config, env, model, offline),
        await (_server(store, state) if store else _store(state)),
    )
    if any(one.name == "workers" and one.state == "ok" for one in stored):
        models = [_of_workers(one) for one in models]
    findings += [*models, *stored]
    findings += _places(state)
    findings += _workspace(folder, config, env)
    findings += _import_folders(folder, env)
    keep_out([str(folder)])
    findings.append(await asyncio.to_thread(_sandbox))
    if kept := kept_in(state / FOLDER):
        commands = "1 command" if len(kept) == 1 else f"{len(kept)} commands"
        words = f"{commands} made files that only you may allow: see {state / FOLDER}"
        findings.append(Finding("set aside", "warn", words, "move back what you want, and remove the rest"))
    return findings


def _of_workers(finding: Finding) -> Finding:
    """The finding about a model where workers of the store run the agents: only commands that drive need one here."""
    if finding.name != "model" or finding.state != "fail":
        return finding
    words = f"{finding.words} here; the workers of this store use theirs"
    return Finding("model", "warn", words, f"for commands that work along, as `fledge run` does: {finding.remedy}")


def _import_folders(folder: Path, env: Environment) -> Iterable[Finding]:
    """A finding if `PYTHONPATH` names folders in which agents may write."""
    named = [entry for entry in env.get("PYTHONPATH", "").split(":") if entry]
    inside = [entry for entry in named if is_within(os.path.realpath(entry), os.path.realpath(folder))]
    if inside:
        words = f"{', '.join(inside)} lies in this folder: each Python that starts imports what agents write there"
        yield Finding("PYTHONPATH", "warn", words, "start fledge without it: env -u PYTHONPATH fledge")


def _workspace(folder: Path, config: Config, env: Environment) -> Iterable[Finding]:
    """A finding if the workspace is broad: agents may not work in the whole home folder unless the person has allowed
    it."""
    place = os.path.realpath(Path(config.agents.defaults.workspace or folder).expanduser())
    if not is_broad(place, os.path.realpath(env.get("HOME") or Path.home())):
        return
    try:
        is_accepted = place in accepted(user_folder(env))
    except FledgeError as error:
        yield Finding("workspace", "fail", str(error))
        return
    words = f"{place} holds your whole home folder"
    if is_accepted:
        take_back = f"fledge trust --workspace {shlex.quote(place)} --revoke takes it back"
        yield Finding("workspace", "warn", f"{words}, and you said yes to agents working there", take_back)
    else:
        yield Finding("workspace", "fail", words, f"{ELSEWHERE}: fledge trust --workspace {shlex.quote(place)}")


async def _models(config: Config, env: Environment, model: str | None, offline: bool) -> list[Finding]:
    registry, catalog = configured_registry(config, env), configured_catalog(config)
    try:
        chosen = settled_model(config, env, model)
        if chosen is None and offline:
            return [Finding("model", "fail", "no model is set", "set agents.defaults.model, or give --model NAME")]
        chosen = chosen or await choose_by_key(config, registry, names_all=True)
        name = chosen.model
        provider = registry.provider_of(name)
    except Refused as error:
        words = "no model is set, and none can be chosen"
        return [Finding("model", "fail", words, f"{error.reason}; or set agents.defaults.model (fledge init)")]
    except FledgeError as error:
        # A program may add providers and models of its own, so that this need not be a mistake.
        return [Finding("model", "warn", str(error), "describe the provider in models.providers, or name another")]
    if provider is None:
        return [Finding("model", "ok", f"{name} needs no provider")]
    findings = [Finding("model", "ok", name + (f" (because {chosen.because})" if chosen.because else ""))]
    findings += await _provider(provider, env, registry.ca_file, offline)
    if offline or any(one.state != "ok" for one in findings if one.name in ("provider", "key")):
        return findings
    return [*findings, await _call(registry, catalog, name, provider)]


async def _call(registry: Registry, catalog: Catalog, name: str, provider: Provider) -> Finding:
    """Ask the model for one word, with a tool offered: a refusal shows now, not in the middle of work."""
    broke, usage = None, Usage()
    try:
        model, called = registry.open(name)
        request = Request(model=called, messages=(UserMessage(ASKED),), tools=(OFFERED,), max_tokens=CALL_TOKENS)
        async with asyncio.timeout(CALL_S):
            async for event in model.stream(request):
                if isinstance(event, Broke):
                    broke = event
                elif isinstance(event, Usage):
                    usage = event
    except TimeoutError:
        return Finding("call", "fail", f"{name} gave no whole answer within {CALL_S:g} s", _REMEDIES["interrupted"])
    except FledgeError as error:
        return Finding("call", "fail", str(error), f"correct {getattr(error, 'field', 'it')}")
    finally:
        await registry.close()
    if broke is not None:
        advice = broke.remedy or _REMEDIES[broke.trouble].format(api=f"models.providers.{provider.name}.api")
        return Finding("call", "fail", f"{name} does not answer: {broke.message}", advice)
    dollars = catalog.cost(name, usage)
    price = "its price is not known" if dollars is None else f"it cost ${dollars:.6f}"
    given = usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens
    return Finding("call", "ok", f"{name} answers ({given} tokens in, {usage.output_tokens} out; {price})")


async def _provider(provider: Provider, env: Environment, ca_file: str | None, offline: bool) -> list[Finding]:
    key = None
    findings: list[Finding] = []
    try:
        base_url, wanted = base_url_of(provider, env), needed_key(provider, env)
    except FledgeError as error:
        given = next((variable for variable in provider.base_url_env if env.get(variable)), None)
        remedy = f"correct {given}, or unset it" if given else f"set models.providers.{provider.name}.baseUrl"
        return [Finding("provider", "fail", str(error), remedy)]
    if provider.key_env or provider.key_file:
        try:
            key = key_of(provider, env)
        except FledgeError as error:
            findings.append(Finding("key", "fail", str(error), "`fledge docs security` says how to store keys"))
        else:
            missing = key is None and wanted is not None
            words = f"{provider.key_file or provider.key_env} is {'not set' if key is None else 'set'}"
            remedy = f"export {provider.key_env}=…, or {provider.key_env}_FILE=path of a 0600 file" if missing else ""
            findings.append(Finding("key", "warn" if missing else "ok", words, remedy))
    if offline:
        return findings
    return findings + await _reach(provider, base_url, key, env, ca_file)


async def _reach(
    provider: Provider, base_url: str, key: SecretKey | None, env: Environment, ca_file: str | None
) -> list[Finding]:
    import aiohttp
    from yarl import URL

    address, path, headers = models_request(provider, base_url, key)
    url = address + path
    where = next(iter(provider.base_url_env), "the network")
    try:
        proxy, tls = proxy_for(url, env), tls_context(env, ca_file)
    except FledgeError as error:
        return [Finding("provider", "fail", str(error), f"correct {getattr(error, 'field', 'it')}")]
    if proxy is not None:
        where = f"{proxy.variable} ({proxy.place})"
    try:
        timeout = aiohttp.ClientTimeout(total=PATIENCE_S)
        async with (
            aiohttp.ClientSession(timeout=timeout, connector=aiohttp.TCPConnector(ssl=tls)) as client,
            client.get(
                URL(url, encoded=True),
                headers=headers,
                allow_redirects=False,
                proxy=None if proxy is None else proxy.url,
            ) as response,
        ):
            status, date = response.status, response.headers.get("Date", "")
    except (aiohttp.ClientError, TimeoutError, ValueError, OSError) as error:
        words = f"{base_url} cannot be reached ({type(error).__name__})"
        return [Finding("provider", "fail", words, f"check {where}, a proxy, or start the server")]
    found = Finding("provider", "ok", f"{base_url} answers ({status})")
    if status in (401, 403):
        words = f"{base_url} answers, and refuses the key ({status})"
        found = Finding("provider", "fail", words, f"check {provider.key_env or 'the key'}")
    return [found, *_clock(date)]


def _clock(date: str) -> list[Finding]:
    try:
        theirs = parsedate_to_datetime(date).timestamp()
    except (ValueError, TypeError):
        return []
    off = time.time() - theirs
    if abs(off) <= SKEW_S:
        return [Finding("clock", "ok", f"within {abs(off):.0f} s of the provider's")]
    return [Finding("clock", "fail", f"{_off(off)} the provider's", "set this machine's clock (NTP)")]


def _off(seconds: float) -> str:
    return f"{abs(seconds):.0f} s {'ahead of' if seconds > 0 else 'behind'}"


async def _store(state: Path) -> list[Finding]:
    if not (state / DATABASE).exists():
        return [Finding("store", "ok", f"{state}: none yet; the first run makes it")]
    try:
        store = SqliteStore.open(state, checked_bytes=sys.maxsize)
    except StoreLocked as error:
        return [Finding("store", "ok", str(error))]
    except FledgeError as error:
        return [Finding("store", "fail", str(error), "nothing was changed; restore a copy, or use another --state")]
    try:
        newest, wrong = await store.read(lambda tx: (tx.next_due(0.0), tx.lists.miscounted()))
    finally:
        await store.close()
    words = f"{state / DATABASE} opens" + ("" if newest is None else ", with work that is due")
    return [_counted(wrong, words)]


def _counted(wrong: Sequence[str], words: str) -> Finding:
    """The finding for a store that opens: whether its counts are right."""
    if not wrong:
        return Finding("store", "ok", words)
    words = f"{len(wrong)} counts of runs are wrong, the first of {wrong[0]}"
    return Finding("store", "fail", words, "lists may say so many too few; no run is lost. Please report it")


async def _server(url: str, state: Path) -> list[Finding]:
    """Findings for a store on a server: whether it opens from here, which processes work with it, and whether the
    clocks of server and machine agree."""
    try:
        store = await asyncio.to_thread(open_server, url, state, drives=False)
    except FledgeError as error:
        return [Finding("store", "fail", str(error), "nothing was changed; `fledge docs scale` says how it is set up")]
    sql = "SELECT CAST(extract(epoch FROM clock_timestamp()) AS DOUBLE PRECISION)"
    try:
        wrong, now, members, drivers = await store.read(
            lambda tx: (
                tx.lists.miscounted(),
                float(tx.unit.one(sql)[0]),
                tx.engines.all(),
                tx.drivers.all(),
            )
        )
    finally:
        await store.close()
    findings = [_counted(wrong, f"{shown(url)} opens, with its files in {state}")]
    off = time.time() - now
    if abs(off) > SERVER_SKEW_S:
        words = f"{_off(off)} the server of the store"
        findings.append(Finding("clock", "warn", words, "set the clocks of both machines (NTP)"))
    return [*findings, *_workers(members, Counter(one.owner for one in drivers), now)]


def _workers(members: Sequence[Member], driven: Counter[str], now: float) -> Iterable[Finding]:
    """Findings for the processes of a store on a server: whether any runs its agents, and whether they have the same
    settings."""
    drive = [one for one in members if one.drives and not one.drains and is_alive(one, now)]
    for one in members:
        if not is_alive(one, now):
            seen = f"it was last seen {now - one.seen_at:.0f} s ago"
            follows = "a worker takes over from it" if drive else "start one with `fledge worker`, which takes over"
            yield Finding("processes", "warn", f"{one.shown} is dead: {seen}, and drives {driven[one.id]}", follows)
        else:
            what = f"drives {driven[one.id]}" if one.drives else "runs no agents"
            yield Finding("processes", "ok", f"{one.shown} ({one.name}, fledge {one.version}) {what}")
    if not drive:
        yield Finding("workers", "warn", "no process runs the agents of this store", "start one with `fledge worker`")
        return
    yield Finding("workers", "ok", f"{len(drive)}: {', '.join(one.shown for one in drive)}")
    for one in drive[1:]:
        if names := differences(drive[0], one):
            words = f"{one.shown} and {drive[0].shown} have other settings in {', '.join(names)}"
            yield Finding("workers", "warn", words, "give all of them the same settings, tools and agents")


def _places(state: Path) -> Iterable[Finding]:
    existing = next(path for path in (state, *state.parents) if path.exists())
    if not existing.is_dir():
        yield Finding("permissions", "fail", f"{existing} is a file, not a folder", "name another with --state")
        return
    if not os.access(existing, os.W_OK | os.X_OK):
        yield Finding("permissions", "fail", f"{existing} cannot be written", f"chown or chmod {existing}, or --state")
    elif state.exists() and state.stat().st_mode & 0o077:
        mode = f"{state.stat().st_mode & 0o777:o}"
        yield Finding("permissions", "warn", f"{state} can be entered by others ({mode})", f"chmod 700 {state}")
    else:
        yield Finding("permissions", "ok", f"{existing} is yours")
    free = shutil.disk_usage(existing).free
    low = free < LOW_SPACE
    yield Finding("space", "warn" if low else "ok", f"{free // 2**20} MB free", "free some space" if low else "")


def _sandbox() -> Finding:
    if find_sandbox(Path()) is not None:
        return Finding("sandbox", "ok", "bubblewrap works: exec runs inside it")
    words = "bubblewrap does not work here: exec asks a person before each call"
    return Finding("sandbox", "warn", words, "install bubblewrap and allow user namespaces")


def lines(findings: Iterable[Finding]) -> list[str]:
    """The findings as people read them."""
    shown = []
    for one in findings:
        shown.append(f"{one.state:<4}  {one.name:<11}  {one.words}")
        if one.remedy:
            shown.append(f"{'':<4}  {'':<11}  → {one.remedy}")
    return shown
