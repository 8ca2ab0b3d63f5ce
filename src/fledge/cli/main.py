"""The `fledge` command: its options, its commands, and what runs each.

Options that several commands share (`SHARED`) may stand before the command or behind it. Commands import what they need
when they run, so that `--help` stays quick.
"""

import argparse
import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import fledge
from fledge.cli.printing import CommandOutput, note, say
from fledge.core.printable import printable_json
from fledge.errors import BadInput, FledgeError

if TYPE_CHECKING:
    from pathlib import Path

    from fledge.cli.verbs import RunsWanted
    from fledge.cli.where import Where

TALKS_IN = "the conversation, created if it does not exist (default: that of this folder)"
RUN = "a run: label, run id or the beginning of one, or session key"
FILTERS: Final = {
    "active": "only runs that have not ended",
    "waiting": "only runs that wait for you",
    "stuck": "only runs without progress for a long time",
    "failed": "only runs that failed",
    "undelivered": "only runs with an undelivered result",
}
"""Which runs `ps` and `tree` show."""
DRIVING: Final = (None, "chat", "run", "spawn", "send")
"""Commands that drive a folder while they wait: what they leave unfinished goes on later."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; answers the exit code. What goes wrong is one readable line, never a traceback."""
    options = parse(arguments)
    if options.verbose:
        import logging

        logging.basicConfig(level=logging.INFO if options.verbose == 1 else logging.DEBUG, stream=sys.stderr)
    code = 1
    try:
        code = _carry_out(options)
    finally:
        if options.name == "run" and options.json:
            from fledge.cli import stream

            say(stream.line(stream.Settled(exit=code)))
    return code


def _carry_out(options: argparse.Namespace) -> int:
    try:
        _check_text(options)
        return int(options.command(options))
    except FledgeError as error:
        note(f"{error}")
        if options.verbose:
            import traceback

            traceback.print_exc()
        return 1
    except BrokenPipeError:
        # Whoever read the output has gone, as `head` does: that is no error, and nothing may be written any more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        # A second Ctrl-C ends the process at once: the first is answered, and nothing may become a traceback.
        with contextlib.suppress(ValueError):  # only the main thread hears signals
            signal.signal(signal.SIGINT, signal.SIG_DFL)
        if options.name in DRIVING:
            note("stopped; `fledge run --continue` goes on")
        return 130


class _Shared(NamedTuple):
    """An option that several commands take."""

    flag: str
    help: str
    metavar: str | None = None
    action: Literal["store", "append", "store_true", "count"] = "store"


SHARED: Final[Mapping[str, _Shared]] = {
    "state": _Shared("--state", "the state folder (default: $FLEDGE_STATE, else ~/.fledge)", "DIR"),
    "store": _Shared(
        "--store",
        "use a store on PostgreSQL, postgresql://… (default: $FLEDGE_STORE, if set); fledge docs scale",
        "URL",
    ),
    "gateway": _Shared("--gateway", "use a gateway on another machine (default: $FLEDGE_GATEWAY, if set)", "URL"),
    "token_file": _Shared("--token-file", "the file with the gateway's token (default: $FLEDGE_GATEWAY_TOKEN)", "FILE"),
    "model": _Shared(
        "--model", "the model, such as openai/gpt-5, anthropic/claude-sonnet-4-5, ollama/llama3.2", "NAME"
    ),
    "settings": _Shared("--set", "change a setting for this command (fledge docs config)", "KEY=VALUE", "append"),
    "json": _Shared("--json", "print JSON, for programs", action="store_true"),
    "verbose": _Shared("-v", "log more to standard error; -vv: everything", action="count"),
}
"""The options that may stand before the command and behind it, by the name under which commands read them."""
_BEFORE: Final = "before "
"""Begins the name of an option that stands before the command, so that the command's own parser does not replace it."""


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """What a command line asks for. An option means the same before the command and behind it: one that the command
    does not take is refused in both places, of two values the last counts, settings and `-v` add up."""
    parser = _parser()
    options = parser.parse_args(arguments)
    command = _choices(parser)[options.name or "chat"]
    if options.name is None:
        command.parse_args([], options)
    for name, shared in SHARED.items():
        before = getattr(options, _BEFORE + name)
        delattr(options, _BEFORE + name)
        if before is not None and not hasattr(options, name):
            command.error(f"takes no {shared.flag}")
        elif hasattr(options, name):
            setattr(options, name, _joined(shared, before, getattr(options, name)))
    return options


def _joined(shared: _Shared, before: Any, behind: Any) -> Any:
    match shared.action:
        case "append":
            return [*(before or ()), *(behind or ())]
        case "count":
            return (before or 0) + (behind or 0)
        case "store_true":
            return bool(before or behind)
        case _:
            return before if behind is None else behind


def commands() -> Iterable[str]:
    """The names of all commands."""
    return _choices(_parser())


def _choices(parser: argparse.ArgumentParser) -> Mapping[str, argparse.ArgumentParser]:
    action = next(one for one in parser._actions if isinstance(one, argparse._SubParsersAction))
    choices: Mapping[str, argparse.ArgumentParser] = action.choices
    return choices


def _take(parser: argparse.ArgumentParser, *names: str, prefix: str = "", **helps: str) -> None:
    """Let a command take these shared options; `helps` says what one means there, where that is something special."""
    for name in names:
        shared = SHARED[name]
        metavar: dict[str, Any] = {"metavar": shared.metavar} if shared.metavar else {}
        words = helps.get(name, shared.help)
        parser.add_argument(shared.flag, dest=prefix + name, action=shared.action, default=None, help=words, **metavar)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="fledge",
        description=f"{fledge.__doc__} Without a command: a chat.",
        epilog="These options can also follow the command. The last value wins; --set can be repeated. "
        "Documentation: fledge docs.",
    )
    parser.add_argument("--version", action="version", version=f"fledge {fledge.__version__}")
    _take(parser, *SHARED, prefix=_BEFORE)
    subparsers = parser.add_subparsers(metavar="COMMAND", dest="name")

    def add(name: str, run: Callable[[argparse.Namespace], int], *takes: str, help: str, **helps: str) -> Any:
        """A command, what runs it, and the shared options it takes besides `-v`."""
        command = subparsers.add_parser(name, help=help)
        _take(command, *takes, "verbose", **helps)
        command.set_defaults(command=run)
        return command

    asks = ("state", "store", "gateway", "token_file")
    thinks = (*asks, "model", "settings")
    shows = (*asks, "json")
    chat = add("chat", _chat, *thinks, help="talk to the main agent (the default)")
    chat.add_argument("--session", metavar="NAME", help=TALKS_IN)
    events = "print events, one line of JSON each; the last has the type settled (fledge docs protocol)"
    run = add(
        "run", _run, *thinks, "json", help="send a prompt, print the answers, return when all work is done", json=events
    )
    run.add_argument("-q", "--quiet", action="store_true", help="show no progress on standard error")
    run.add_argument("prompt", nargs="?", help="the prompt; without it, or with -, it is read from standard input")
    run.add_argument("--session", metavar="NAME", help=TALKS_IN)
    run.add_argument("--image", action="append", default=[], metavar="FILE", help="add an image to the prompt")
    run.add_argument("--attach", action="append", default=[], metavar="FILE", help="add a file to the prompt")
    run.add_argument("--continue", dest="go_on", action="store_true", help="send no prompt; continue unfinished work")
    serve = add(
        "serve",
        _serve,
        "state",
        "store",
        "model",
        "settings",
        help="start the gateway: web page, JSON-RPC, channels",
    )
    alone = "run no agents here; the workers of the store do (needs --store)"
    serve.add_argument("--no-drive", dest="drives", action="store_false", help=alone)
    serve.add_argument("--host", help="the address to listen on (default: gateway.host, this machine only)")
    serve.add_argument("--port", type=int, help="the port to listen on (default: gateway.port); 0: any free port")
    works = "run the agents of a store on PostgreSQL, beside other workers, until Ctrl-C or SIGTERM"
    lines = "print lines of JSON: one when it is ready, one when it has ended"
    add("worker", _worker, "state", "store", "model", "settings", "json", help=works, json=lines)
    page = add("page", _page, "state", help="open the web page of the running gateway in a browser, signed in")
    page.add_argument("--no-open", dest="opens", action="store_false", help="only print the address")

    ps = add("ps", _ps, *shows, help="list the runs of this folder's conversation, and what waits for you")
    tree = add("tree", _tree, *shows, help="list all runs as a tree")
    for command, limit in ((ps, 20), (tree, 100)):
        which = command.add_mutually_exclusive_group()
        for name, words in FILTERS.items():
            which.add_argument(f"--{name}", dest="filter", action="store_const", const=name, default="all", help=words)
        command.add_argument(
            "--search", default="", metavar="WORDS", help="only runs with these words in label or task"
        )
        command.add_argument("--agent", default="", metavar="ID", help="only runs of this agent")
        command.add_argument("--session", default="", metavar="NAME", help="only runs below this conversation or run")
        command.add_argument("--limit", type=int, default=limit, metavar="N", help=f"at most N runs (default: {limit})")
        command.add_argument("--watch", action="store_true", help="follow the runs until all have settled")
    info = add("info", _info, *shows, help="show one run with its timeline")
    info.add_argument("run", help=RUN)
    log = add("log", _log, *shows, help="show the end of a transcript")
    log.add_argument("run", nargs="?", help="main, or a run as for info (default: the conversation of this folder)")
    log.add_argument("-n", dest="last", type=int, default=20, metavar="N", help="the last N entries (default: 20)")
    log.add_argument("--tools", action="store_true", help="include tool results")
    lost = add("undelivered", _undelivered, *shows, help="list undelivered results, or retry or dismiss one")
    lost.add_argument(
        "action", nargs="?", choices=["retry", "dismiss"], help="deliver one again, or remove it from the list"
    )
    lost.add_argument("run", nargs="?", help="a run, as for info")
    sessions = add(
        "sessions", _sessions, *shows, help="list conversations and sessions of subagents, the most recent first"
    )
    sessions.add_argument("-n", dest="last", type=int, default=50, metavar="N", help="at most N (default: 50)")
    add("health", _health, *shows, help="show the state of the process that holds this folder: lanes, store, errors")
    add("agents", _agents, "model", "settings", "json", help="list the configured agents")
    spawn = add("spawn", _spawn, *thinks, "json", help="start a run and wait for its answer")
    spawn.add_argument("task", help="the task; with -, it is read from standard input")
    spawn.add_argument("--label", default="", help="a short name for lists")
    spawn.add_argument("--agent", default="main", metavar="ID", help="the agent (default: main)")
    spawn.add_argument("--timeout", type=float, default=0.0, metavar="S", help="end the run after S seconds of work")
    spawn.add_argument("--plan", action="store_true", help="only make a plan: print it and exit with 3")
    spawn.add_argument("--runtime", default="subagent", metavar="NAME", help="a runtime of the settings")
    send = add("send", _send, *thinks, "json", help="send a message and wait for the answer")
    to = f"main, a conversation, or {RUN} (default: the conversation of this folder)"
    send.add_argument("run", nargs="?", help=to)
    send.add_argument("message", help="the message; with -, it is read from standard input")
    steer = add("steer", _steer, *shows, help="stop what a run does and give it new instructions")
    steer.add_argument("run", help=RUN)
    steer.add_argument("message", help="the new instructions")
    kill = add("kill", _kill, *shows, help="end a run and everything below it, without an announcement")
    kill.add_argument("run", help=f"{RUN}; or all")
    kill.add_argument("--dry-run", action="store_true", help="only list what would end")
    resume = add("resume", _resume, *shows, help="let a killed run continue where it stopped")
    resume.add_argument("run", help=RUN)
    resume.add_argument("words", nargs="?", default="", help="a message for the run")
    again = add("again", _again, *shows, help="start a new run with the same task and options")
    again.add_argument("run", help=RUN)
    approve = add("approve", _approve, *shows, help="approve a tool call or a plan")
    approve.add_argument("run", help=f"{RUN}; or the id of a question")
    approve.add_argument("words", nargs="?", default="", help="an addition to the plan")
    approve.add_argument(
        "--always", action="store_true", help="also allow such commands of this agent in this folder from now on"
    )
    approve.add_argument("--children", action="store_true", help="with --always: also for its subagents")
    approve.set_defaults(yes=True)
    reject = add("reject", _approve, *shows, help="reject a tool call, or a plan, which is then made again")
    reject.add_argument("run", help=f"{RUN}; or the id of a question")
    reject.add_argument("words", nargs="?", default="", help="the reason, for the model")
    reject.set_defaults(yes=False, always=False, children=False)
    rules = add("permissions", _permissions, *shows, help="list the commands you have allowed for good, or revoke one")
    rules.add_argument("action", nargs="?", choices=["revoke"], help="remove a rule")
    rules.add_argument("id", nargs="?", help="the id of a rule, or the beginning of it")
    where = "main, a conversation, or a run (default: the conversation of this folder)"
    event = add("event", _event, *shows, help="tell a conversation that something happened")
    event.add_argument("text", help="what happened; with -, it is read from standard input")
    event.add_argument("--session", metavar="NAME", help=where)
    beat = add(
        "heartbeat", _heartbeat, *shows, help="start a heartbeat turn, in which a conversation checks its open work"
    )
    beat.add_argument("reason", nargs="?", default="", help="the reason, for the log")
    beat.add_argument("--session", metavar="NAME", help=where)

    init = add("init", _init, help="write a commented settings file into this folder")
    init.add_argument("folder", nargs="?", default=".", help="the folder (default: this one)")
    as_with = "show the settings with this change"
    config = add(
        "config",
        _config,
        "settings",
        help="show the settings in effect, and where they come from",
        settings=as_with,
    )
    config.add_argument("key", nargs="?", help="one setting, such as agents.defaults.subagents.maxConcurrent")
    config.add_argument(
        "--all", dest="everything", action="store_true", help="show every setting: value, default and source"
    )
    trust = add(
        "trust", _trust, "state", "store", help="trust the settings and documents of this folder as they are now"
    )
    trust.add_argument("folder", nargs="?", default=".", help="the folder (default: this one)")
    trust.add_argument("--show", action="store_true", help="only show what would be trusted and what changed")
    trust.add_argument("--revoke", action="store_true", help="no longer trust it")
    trust.add_argument("--list", dest="listed", action="store_true", help="list what is trusted")
    trust.add_argument(
        "--workspace", metavar="DIR", help="let agents work in DIR, although it contains your home folder"
    )
    checked = "check this model instead of the configured one"
    doctor = add(
        "doctor",
        _doctor,
        "state",
        "store",
        "model",
        help="find problems: key, provider, store, sandbox, clock",
        model=checked,
    )
    doctor.add_argument("--offline", action="store_true", help="contact no provider")
    listed = add("models", _models, "settings", "json", help="list the models you can use now, with prices")
    listed.add_argument("--all", dest="everything", action="store_true", help="include models whose key is missing")
    storing = add("store", _store, help="copy a store to another database, or move the files of one on a server")
    what = "copy: to another database; files: they are in the folder TARGET from now on"
    storing.add_argument("action", choices=["copy", "files"], help=what)
    storing.add_argument("source", help="a state folder, or an address: postgresql://user@host/database?schema=name")
    storing.add_argument("target", help="copy: an empty folder or schema, or one with an unfinished copy")
    importing = add("import", _import, "state", "store", help="import the history of another system")
    importing.add_argument("system", choices=["openclaw"], help="the system")
    importing.add_argument("folder", help="its state folder, usually ~/.openclaw")
    docs = add("docs", _docs, help="list the pages of documentation, or print one")
    docs.add_argument("page", nargs="?", help="the name of a page")
    completion = add("completion", _completion, help="print a completion script: source <(fledge completion bash)")
    completion.add_argument("shell", choices=["bash", "zsh", "fish"], help="your shell")
    bench = add("bench", _bench, help="run the benchmarks; needs a checkout of the project")
    bench.add_argument("--quick", action="store_true", help="fewer and smaller measurements")
    kept = "keep the state in this folder (default: a temporary one)"
    add("demo", _demo, "state", help="watch subagents work, get killed with -9, and finish; offline", state=kept)
    return parser


def _check_text(options: argparse.Namespace) -> None:
    """Refused: what was said is no text. Folders may be named as they like."""
    for name, value in vars(options).items():
        if isinstance(value, str) and name not in ("state", "folder"):
            _checked(name, value)


def _checked(name: str, text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise BadInput(name, "must be text in UTF-8") from None
    return text


def _stdin() -> str:
    """What comes on standard input."""
    try:
        return _checked("standard input", sys.stdin.read())
    except UnicodeDecodeError:
        raise BadInput("standard input", "must be text in UTF-8") from None


def _state_folder(options: argparse.Namespace) -> "Path":
    from fledge.cli.where import state_folder

    return state_folder(options.state, os.environ)


def _where(options: argparse.Namespace) -> "Where":
    """The folder, or the gateway, that a command is about."""
    from fledge.cli.where import where

    settings = getattr(options, "settings", ())
    return where(options.state, options.gateway, options.token_file, settings, os.environ, options.store)


def _here(options: argparse.Namespace) -> "Where":
    """The same of a command that asks no gateway."""
    from fledge.cli.where import folder_or_store

    return folder_or_store(options.state, options.store, os.environ)


def _chat(options: argparse.Namespace) -> int:
    import asyncio
    import gc

    gc.disable()  # nothing of a start is garbage, and looking for some takes a tenth of its time
    try:
        from fledge.api.views import session_key
        from fledge.cli import chat

        if options.session is not None:
            session_key(options.session, "--session")
        settings = tuple(options.settings)
        return asyncio.run(chat.sit(_where(options), options.model, settings, options.session, gc.enable))
    finally:
        gc.enable()


def _run(options: argparse.Namespace) -> int:
    import asyncio

    from fledge.api.carried import for_wire, read_files
    from fledge.api.views import session_key
    from fledge.cli import run
    from fledge.cli.ending import until_ended

    refused = {"prompt": options.prompt is not None, "image": options.image, "attachment": options.attach}
    for wanted, given in refused.items():
        if options.go_on and given:
            raise BadInput("--continue", f"takes no {wanted}: it continues unfinished work")
    prompt = options.prompt
    if not options.go_on and prompt in (None, "-"):
        prompt = _stdin()
    if not options.go_on and not (prompt or "").strip():
        raise BadInput("prompt", "must not be empty: say what to do, or use --continue")
    images = tuple(read_files(options.image, "--image"))
    attachments = tuple(for_wire(options.attach, "--attach"))
    session = "" if options.session is None else session_key(options.session, "--session")
    request = run.RunRequest(
        prompt,
        options.model,
        images,
        attachments,
        session,
        json=options.json,
        quiet=options.quiet,
        draws=not options.verbose,
    )
    conversing = run.converse(_where(options), request, tuple(options.settings))
    return asyncio.run(until_ended(conversing))


def _serve(options: argparse.Namespace) -> int:
    from fledge.cli import serving

    place = _here(options)
    if not options.drives and not place.store:
        raise BadInput("--no-drive", "needs --store: a state folder has no other process that runs its agents")
    settings = tuple(options.settings)
    return serving.serve(place, options.model, settings, options.host, options.port, drives=options.drives)


def _worker(options: argparse.Namespace) -> int:
    from fledge.cli import working

    return working.work(_here(options), options.model, tuple(options.settings), json=options.json)


def _ps(options: argparse.Namespace) -> int:
    from fledge.cli import verbs

    if options.watch:
        return _watch(options, "ps")
    return _tell(verbs.ps(_where(options), _runs_wanted(options)), options)


def _tree(options: argparse.Namespace) -> int:
    from fledge.cli import verbs

    if options.watch:
        return _watch(options, "tree")
    return _tell(verbs.tree(_where(options), _runs_wanted(options)), options)


def _runs_wanted(options: argparse.Namespace) -> "RunsWanted":
    from fledge.cli.verbs import RunsWanted

    return RunsWanted(options.filter, options.search, options.agent, options.session, options.limit)


def _watch(options: argparse.Namespace, what: Literal["tree", "ps"]) -> int:
    from fledge.cli import watching

    if options.json:
        raise BadInput(
            "--watch", "takes no --json: `fledge run --json` and the gateway's feeds send events to programs"
        )
    return watching.watch(_where(options), what, _runs_wanted(options), draws=not options.verbose)


def _info(options: argparse.Namespace) -> int:
    from fledge.cli import verbs

    return _tell(verbs.info(_where(options), options.run), options)


def _log(options: argparse.Namespace) -> int:
    from fledge.cli import verbs

    if options.last < 1:
        raise BadInput("-n", "must be 1 or more", options.last)
    return _tell(verbs.log(_where(options), options.run, options.last, options.tools), options)


def _undelivered(options: argparse.Namespace) -> int:
    from fledge.cli import verbs

    place = _where(options)
    if options.action is None:
        return _tell(verbs.undelivered(place), options)
    if options.run is None:
        raise BadInput("run", f"must be named: fledge undelivered {options.action} RUN")
    return _tell(verbs.take_up(place, options.action, options.run), options)


def _sessions(options: argparse.Namespace) -> int:
    from fledge.cli import verbs

    return _tell(verbs.sessions(_where(options), options.last), options)


def _page(options: argparse.Namespace) -> int:
    from fledge.cli import page

    return _show(page.page(_state_folder(options), options.opens))


def _health(options: argparse.Namespace) -> int:
    from fledge.cli import verbs

    return _tell(verbs.health(_where(options)), options)


def _agents(options: argparse.Namespace) -> int:
    from pathlib import Path

    from fledge.cli import settings

    return _tell(settings.agents(Path.cwd(), options.model, tuple(options.settings)), options)


def _spawn(options: argparse.Namespace) -> int:
    from fledge.cli import spawning

    task = spawning.SpawnTask(
        task=_words(options.task, "task"),
        label=options.label,
        agent_id=options.agent,
        timeout=options.timeout,
        plan=options.plan,
        runtime=options.runtime,
    )
    place = _where(options)
    return _tell(spawning.spawn(place, options.model, tuple(options.settings), task), options)


def _send(options: argparse.Namespace) -> int:
    from fledge.cli import spawning

    place, message = _where(options), _words(options.message, "message")
    settings = tuple(options.settings)
    return _tell(spawning.send(place, options.model, settings, options.run, message), options)


def _steer(options: argparse.Namespace) -> int:
    from fledge.cli import verbs

    return _tell(verbs.steer(_where(options), options.run, options.message), options)


def _kill(options: argparse.Namespace) -> int:
    from fledge.cli import verbs

    place = _where(options)
    return _tell((verbs.would_end if options.dry_run else verbs.kill)(place, options.run), options)


def _resume(options: argparse.Namespace) -> int:
    from fledge.cli import verbs

    return _tell(verbs.resume(_where(options), options.run, options.words), options)


def _again(options: argparse.Namespace) -> int:
    from fledge.cli import verbs

    return _tell(verbs.again(_where(options), options.run), options)


def _approve(options: argparse.Namespace) -> int:
    from fledge.cli import verbs

    given = (options.run, options.words, options.yes, options.always, options.children)
    return _tell(verbs.answer(_where(options), *given), options)


def _permissions(options: argparse.Namespace) -> int:
    from fledge.cli import verbs

    place = _where(options)
    if options.action is None:
        return _tell(verbs.permissions(place), options)
    if options.id is None:
        raise BadInput("id", f"must be named: fledge permissions {options.action} ID")
    return _tell(verbs.revoke(place, options.id), options)


def _event(options: argparse.Namespace) -> int:
    from fledge.cli import verbs

    text = _words(options.text, "text")
    return _tell(verbs.event(_where(options), options.session, text), options)


def _heartbeat(options: argparse.Namespace) -> int:
    from fledge.cli import verbs

    return _tell(verbs.heartbeat(_where(options), options.session, options.reason), options)


def _words(given: str, field: str) -> str:
    words = _stdin() if given == "-" else given
    if not words.strip():
        raise BadInput(field, "must not be empty")
    return words


def _tell(shown: CommandOutput, options: argparse.Namespace) -> int:
    """Print it, as it was asked for."""
    if options.json:
        import json

        say(printable_json(json.dumps(shown.value, indent=2, ensure_ascii=False)))
    else:
        say("\n".join(shown.lines))
    return shown.code


def _init(options: argparse.Namespace) -> int:
    from pathlib import Path

    from fledge.cli import settings

    return _show(settings.init(Path(options.folder)))


def _config(options: argparse.Namespace) -> int:
    from pathlib import Path

    from fledge.cli import settings

    return _show(settings.show(Path.cwd(), tuple(options.settings), options.key, options.everything))


def _trust(options: argparse.Namespace) -> int:
    from pathlib import Path

    from fledge.cli import settings, verbs

    folder = Path(options.folder).resolve()
    if options.listed:
        return _show(settings.trusted())
    if options.workspace is not None:
        place = Path(options.workspace).expanduser()
        return _show(settings.distrust_workspace(place) if options.revoke else settings.trust_workspace(place))
    if options.show:
        return _show(settings.show_trust(folder))
    if options.revoke:
        return _show(settings.distrust(folder))
    taken = verbs.take_in(_here(options), folder, is_named=options.state is not None)
    return _show([*taken, *settings.trust_folder(folder, or_nothing=bool(taken))])


def _doctor(options: argparse.Namespace) -> int:
    import asyncio
    import os
    from pathlib import Path

    from fledge.cli import doctor

    place, offline = _here(options), options.offline
    examining = doctor.examine(Path.cwd(), place.state, os.environ, options.model, offline=offline, store=place.store)
    findings = asyncio.run(examining)
    _show(doctor.lines(findings))
    return int(any(one.state == "fail" for one in findings))


def _models(options: argparse.Namespace) -> int:
    import asyncio
    import os
    from pathlib import Path

    from fledge.cli import models

    shown = models.usable_models(Path.cwd(), os.environ, tuple(options.settings), options.everything)
    return _tell(asyncio.run(shown), options)


def _docs(options: argparse.Namespace) -> int:
    from fledge.cli import pages

    return _show(pages.listing() if options.page is None else pages.page(options.page).splitlines())


def _completion(options: argparse.Namespace) -> int:
    from fledge.cli import completion

    return _show([completion.script(options.shell, _parser())])


def _bench(options: argparse.Namespace) -> int:
    import subprocess
    from pathlib import Path

    root = Path(fledge.__file__).parents[2]
    if not (root / "bench" / "__main__.py").exists():
        raise BadInput(
            "bench", "is part of the project's checkout, not of the installed package: clone it, then make bench"
        )
    command = [sys.executable, "-m", "bench", *(["--quick"] if options.quick else [])]
    return subprocess.run(command, cwd=root, check=False).returncode


def _import(options: argparse.Namespace) -> int:
    from pathlib import Path

    from fledge.cli import importing

    return _show(importing.import_openclaw(Path(options.folder).expanduser(), _here(options)))


def _store(options: argparse.Namespace) -> int:
    from fledge.cli import storing

    done = storing.copy_store if options.action == "copy" else storing.move_files
    return _show(done(options.source, options.target))


def _show(lines: Sequence[str]) -> int:
    say("\n".join(lines))
    return 0


def _demo(options: argparse.Namespace) -> int:
    from fledge.cli import demo

    return demo.show(options.state)


if __name__ == "__main__":
    sys.exit(main())
