"""The `fledge` command: its options, its commands, and the function that runs each.

Options that several commands share (`SHARED`) may stand before the command or after it. Commands import what they need
when they run, so that `--help` stays quick.
"""

import contextlib
import os
import signal
import sys
from argparse import ArgumentParser, Namespace, _SubParsersAction
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import fledge
from fledge.cli.printing import CommandAnswer, CommandOutput, note, say
from fledge.core.printable import printable_json
from fledge.errors import BadInput, FledgeError

if TYPE_CHECKING:
    from fledge.cli.where import Where

TALKS_IN = "the conversation, created if it does not exist (default: that of this folder)"
PIPED = "wait for the end of standard input, however long it gives nothing; its text is added to the prompt"
RUN = "a run: label, run id or the beginning of one, or session key"
FILTERS: Final = {
    "active": "only runs that have not ended",
    "waiting": "only runs that wait for you",
    "stuck": "only runs without progress for a long time",
    "failed": "only runs that failed",
    "undelivered": "only runs with an undelivered result",
}
"""The filters of `ps` and `tree`, each with its help."""
DRIVING: Final = (None, "chat", "run", "spawn", "send")
"""Commands that drive a folder while they wait: `fledge run --continue` goes on with work that they leave
unfinished."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code. A FledgeError is one readable line, with a traceback only after `-v`."""
    options = parse(arguments)
    if arguments is None:  # not a program that calls this function
        from fledge.own_code import run_only_fledge

        run_only_fledge()
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


def _carry_out(options: Namespace) -> int:
    try:
        _check_text(options)
        return _tell(options.command(options), options)
    except FledgeError as error:
        note(str(error))
        if options.verbose:
            from fledge.cancellation import trace

            note(trace(error))
        return 1
    except BrokenPipeError:
        # The reader of the output has gone, as `head` does: that is no error, and nothing more may be written.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        # From here on Ctrl-C ends the process at once: the first one is handled, and a traceback must not follow.
        with contextlib.suppress(ValueError):  # only the main thread can handle signals
            signal.signal(signal.SIGINT, signal.SIG_DFL)
        if options.name in DRIVING:
            note("stopped; `fledge run --continue` goes on")
        return 130


_Argument = tuple[tuple[str, ...], dict[str, Any]]
"""An argument of a command, as `add_argument` takes it."""


class SaidWords(str):
    """Text for an agent; `-` stands for the text on standard input."""


def _arg(*flags: str, **options: Any) -> _Argument:
    return flags, options


def _switch(flag: str, help: str, **options: Any) -> _Argument:
    return _arg(flag, action="store_true", help=help, **options)


SHARED: Final[Mapping[str, _Argument]] = {
    "state": _arg("--state", metavar="DIR", help="the state folder (default: $FLEDGE_STATE, else ~/.fledge)"),
    "store": _arg(
        "--store",
        metavar="URL",
        help="use a store on PostgreSQL, postgresql://… (default: $FLEDGE_STORE, if set); fledge docs scale",
    ),
    "gateway": _arg(
        "--gateway", metavar="URL", help="use a gateway on another machine (default: $FLEDGE_GATEWAY, if set)"
    ),
    "token_file": _arg(
        "--token-file", metavar="FILE", help="the file with the gateway's token (default: $FLEDGE_GATEWAY_TOKEN)"
    ),
    "model": _arg(
        "--model",
        metavar="NAME",
        help="the model, such as openai/gpt-5, anthropic/claude-sonnet-4-5, ollama/llama3.2",
    ),
    "settings": _arg(
        "--set", action="append", metavar="KEY=VALUE", help="change a setting for this command (fledge docs config)"
    ),
    "session": _arg("--session", metavar="NAME", help=TALKS_IN),
    "json": _switch("--json", "print JSON, for programs"),
    "verbose": _arg("-v", action="count", help="log more to standard error; -vv: everything"),
}
"""The options that may stand before the command and after it, by the name under which commands read them."""
_BEFORE: Final = "before "
"""The prefix for the name of an option before the command, so that the command's own parser does not replace it."""


def parse(arguments: Sequence[str] | None = None) -> Namespace:
    """The options of a command line. An option means the same before the command and after it: one that the command
    does not take is refused in both places, of two values the last counts, settings and `-v` add up."""
    parser = _parser()
    options, unknown = parser.parse_known_args(arguments)
    command = _choices(parser)[options.name or "chat"]
    if unknown:
        (command if options.name else parser).error(f"unrecognized arguments: {' '.join(unknown)}")
    if options.name is None:
        command.parse_args([], options)
    for name, ((flag,), shared) in SHARED.items():
        before = vars(options).pop(_BEFORE + name)
        if before is not None and not hasattr(options, name):
            command.error(f"takes no {flag}")
        elif hasattr(options, name):
            setattr(options, name, _joined(shared.get("action"), before, getattr(options, name)))
    return options


def _joined(action: str | None, before: Any, behind: Any) -> Any:
    match action:
        case "append":
            return (*(before or ()), *(behind or ()))
        case "count":
            return (before or 0) + (behind or 0)
        case "store_true":
            return bool(before or behind)
        case _:
            return before if behind is None else behind


def commands() -> Iterable[str]:
    """The names of all commands."""
    return _choices(_parser())


def _choices(parser: ArgumentParser) -> Mapping[str, ArgumentParser]:
    action = next(one for one in parser._actions if isinstance(one, _SubParsersAction))
    choices: Mapping[str, ArgumentParser] = action.choices
    return choices


def _take(parser: ArgumentParser, *names: str, prefix: str = "", **helps: str) -> None:
    """Let a command take these shared options; `helps` has the help of those that mean something special there."""
    for name in names:
        flags, shared = SHARED[name]
        special = {"help": helps[name]} if name in helps else {}
        parser.add_argument(*flags, dest=prefix + name, default=None, **shared | special)


class _Command(ArgumentParser):
    """The parser of a command. It is built at its first use: of forty commands a process needs one."""

    def __init__(self, fill: Callable[[ArgumentParser], None], **options: Any) -> None:
        self._fill: Callable[[ArgumentParser], None] | None = fill
        self._options = options

    def __getattr__(self, name: str) -> Any:
        if self._fill is None:
            raise AttributeError(name)
        fill, self._fill = self._fill, None
        super().__init__(**self._options)
        fill(self)
        return getattr(self, name)


def _parser() -> ArgumentParser:
    parser = ArgumentParser(
        prog="fledge",
        description=f"{fledge.__doc__} Without a command: a chat.",
        epilog="These options can also follow the command. The last value wins; --set can be repeated. "
        "Documentation: fledge docs.",
    )
    parser.add_argument("--version", action="version", version=f"fledge {fledge.__version__}")
    _take(parser, *SHARED, prefix=_BEFORE)
    subparsers: Any = parser.add_subparsers(metavar="COMMAND", dest="name", parser_class=_Command)

    def add(
        name: str,
        run: str | Callable[[Namespace], CommandAnswer],
        takes: Sequence[str],
        help: str,
        *arguments: _Argument,
        either: Sequence[_Argument] = (),
        given: Mapping[str, object] | None = None,
        **helps: str,
    ) -> None:
        """Add a command: the function that runs it, the shared options that it takes besides `-v`, its own arguments,
        the arguments of which only one may be given (`either`), and fixed values (`given`). A function of a module of
        `cli`, such as `verbs.info`, gets, as far as the command takes them: the state folder or the `Where`, the model,
        the settings, then the command's own arguments in this order."""

        def fill(command: ArgumentParser) -> None:
            _take(command, *takes, "verbose", **helps)
            if either:
                group = command.add_mutually_exclusive_group()
                for flags, options in either:
                    group.add_argument(*flags, **options)
            own = [command.add_argument(*flags, **options).dest for flags, options in arguments]
            does = run
            if isinstance(does, str):
                place = _where if "gateway" in takes else _here if "store" in takes else "state"
                shared = {"state": place, "model": "model", "settings": "settings"}
                does = _does(does, *(shared[one] for one in takes if one in shared), *own)
            command.set_defaults(command=does, **given or {})

        subparsers.add_parser(name, help=help, fill=fill)

    def verb(name: str, help: str, *arguments: _Argument) -> None:
        """Add a command that runs the function of the same name in `cli.verbs`."""
        add(name, f"verbs.{name}", shows, help, *arguments)

    asks = ("state", "store", "gateway", "token_file")
    thinks = (*asks, "model", "settings")
    shows = (*asks, "json")
    serves = ("state", "store", "model", "settings")
    one_run = _arg("run", help=RUN)
    here = _arg("folder", nargs="?", default=".", help="the folder (default: this one)")

    add("chat", _chat, (*thinks, "session"), "talk to the main agent (the default)")
    add(
        "run",
        _run,
        (*thinks, "session", "json"),
        "send a prompt, print the answers, return when all work is done",
        _arg("-q", "--quiet", action="store_true", help="show no progress on standard error"),
        _arg("prompt", nargs="?", help="the prompt; without it, or with -, it is read from standard input"),
        _arg("piped", nargs="?", choices=["-"], metavar="-", help=PIPED),
        _arg("--image", action="append", default=[], metavar="FILE", help="add an image to the prompt"),
        _arg("--attach", action="append", default=[], metavar="FILE", help="add a file to the prompt"),
        _switch("--continue", "send no prompt; continue unfinished work", dest="go_on"),
        json="print events, one line of JSON each; the last has the type settled (fledge docs protocol)",
    )
    alone = "run no agents here; the workers of the store do (needs --store)"
    add(
        "serve",
        "serving.serve",
        serves,
        "start the gateway: web page, JSON-RPC, channels",
        _arg("--no-drive", dest="drives", action="store_false", help=alone),
        _arg("--host", help="the address to listen on (default: gateway.host, this machine only)"),
        _arg("--port", type=int, help="the port to listen on (default: gateway.port); 0: any free port"),
    )
    works = "run the agents of a store on PostgreSQL, beside other workers, until Ctrl-C or SIGTERM"
    lines = "print lines of JSON: one when it is ready, one when it has ended"
    add("worker", _does("working.work", _here, "model", "settings", "json"), (*serves, "json"), works, json=lines)
    add(
        "page",
        "page.page",
        ("state",),
        "open the web page of the running gateway in a browser, signed in",
        _arg("--no-open", dest="opens", action="store_false", help="only print the address"),
        _arg("--browsers", dest="lists", action="store_true", help="list the browsers that are signed in"),
        _arg("--sign-out", dest="ends", metavar="ID", help="sign out the browser of this id"),
    )

    filters = [
        _arg(f"--{name}", dest="filter", action="store_const", const=name, default="all", help=words)
        for name, words in FILTERS.items()
    ]
    for name, limit, help in (
        ("ps", 20, "list the runs of this folder's conversation, and what waits for you"),
        ("tree", 100, "list all runs as a tree"),
    ):
        add(
            name,
            _runs,
            shows,
            help,
            _arg("--search", default="", metavar="WORDS", help="only runs with these words in label or task"),
            _arg("--agent", default="", metavar="ID", help="only runs of this agent"),
            _arg("--session", metavar="NAME", help="only runs below this conversation or run"),
            _arg("--limit", type=int, default=limit, metavar="N", help=f"at most N runs (default: {limit})"),
            _switch("--watch", "follow the runs until all have settled"),
            either=filters,
        )
    verb("info", "show one run with its timeline", one_run)
    verb(
        "log",
        "show the end of a transcript",
        _arg("run", nargs="?", help="main, or a run as for info (default: the conversation of this folder)"),
        _arg("-n", dest="last", type=int, default=20, metavar="N", help="the last N entries (default: 20)"),
        _switch("--tools", "include tool results"),
    )
    takes_up = "deliver one again, or remove it from the list"
    verb(
        "undelivered",
        "list undelivered results, or retry or dismiss one",
        _arg("action", nargs="?", choices=["retry", "dismiss"], help=takes_up),
        _arg("run", nargs="?", help="a run, as for info"),
    )
    verb(
        "sessions",
        "list conversations and sessions of subagents, the most recent first",
        _arg("-n", dest="last", type=int, default=50, metavar="N", help="at most N (default: 50)"),
    )
    verb("health", "show the state of the process that holds this folder: lanes, store, errors")
    add("agents", "settings.agents", ("model", "settings", "json"), "list the configured agents")
    add(
        "spawn",
        "spawning.spawn",
        (*thinks, "json"),
        "start a run and wait for its answer",
        _arg("task", type=SaidWords, help="the task; with -, it is read from standard input"),
        _arg("--label", default="", help="a short name for lists"),
        _arg("--agent", default="main", metavar="ID", help="the agent (default: main)"),
        _arg("--timeout", type=float, default=0.0, metavar="S", help="end the run after S seconds of work"),
        _switch("--plan", "only make a plan: print it and exit with 3"),
        _arg("--runtime", default="subagent", metavar="NAME", help="a runtime of the settings"),
    )
    to = f"main, a conversation, or {RUN} (default: the conversation of this folder)"
    add(
        "send",
        "spawning.send",
        (*thinks, "json"),
        "send a message and wait for the answer",
        _arg("run", nargs="?", help=to),
        _arg("message", type=SaidWords, help="the message; with -, it is read from standard input"),
    )
    verb(
        "steer",
        "stop what a run does and give it new instructions",
        one_run,
        _arg("message", help="the new instructions"),
    )
    verb(
        "kill",
        "end a run and everything below it, without an announcement",
        _arg("run", help=f"{RUN}; or all"),
        _switch("--dry-run", "only list what would end"),
    )
    verb(
        "resume",
        "let a run continue that was killed, failed or timed out",
        one_run,
        _arg("words", nargs="?", default="", help="a message for the run"),
        _arg("--budget", default="", metavar="B", help="a new budget if its own is used up, such as turns=20,usd=0.5"),
    )
    verb("again", "start a new run with the same task and options", one_run)
    verb("remove", "take a finished run off the lists", one_run)
    answers = _does("verbs.answer", _where, "run", "words", "yes", "always", "children")
    asked = _arg("run", help=f"{RUN}; or the id of a question")
    add(
        "approve",
        answers,
        shows,
        "approve a tool call or a plan",
        asked,
        _arg("words", nargs="?", default="", help="an addition to the plan"),
        _switch("--always", "also allow such commands of this agent in this folder from now on"),
        _switch("--children", "with --always: also for its subagents"),
        given={"yes": True},
    )
    add(
        "reject",
        answers,
        shows,
        "reject a tool call, or a plan, which is then made again",
        asked,
        _arg("words", nargs="?", default="", help="the reason, for the model"),
        given={"yes": False, "always": False, "children": False},
    )
    verb(
        "permissions",
        "list the commands you have allowed for good, or revoke one",
        _arg("action", nargs="?", choices=["revoke"], help="remove a rule"),
        _arg("id", nargs="?", help="the id of a rule, or the beginning of it"),
    )
    where = "main, a conversation, or a run (default: the conversation of this folder)"
    session = _arg("--session", metavar="NAME", help=where)
    verb(
        "event",
        "tell a conversation that something happened",
        _arg("text", type=SaidWords, help="what happened; with -, it is read from standard input"),
        session,
    )
    verb(
        "heartbeat",
        "start a heartbeat turn, in which a conversation checks its open work",
        session,
        _arg("reason", nargs="?", default="", help="the reason, for the log"),
    )

    add("init", "settings.init", (), "write a commented settings file into this folder", here)
    add(
        "config",
        "settings.show",
        ("settings",),
        "show the settings in effect, and where they come from",
        _arg("key", nargs="?", help="one setting, such as agents.defaults.subagents.maxConcurrent"),
        _switch("--all", "show every setting: value, default and source", dest="everything"),
        settings="show the settings with this change",
    )
    broad = "let agents work in DIR, although it contains your home folder"
    add(
        "trust",
        _trust,
        ("state", "store"),
        "trust the settings and documents of this folder as they are now",
        here,
        _switch("--show", "only show what would be trusted and what changed"),
        _switch("--revoke", "no longer trust it"),
        _switch("--list", "list what is trusted", dest="listed"),
        _arg("--workspace", metavar="DIR", help=broad),
    )
    add(
        "doctor",
        "doctor.report",
        ("state", "store", "model"),
        "find problems: key, provider, store, sandbox, clock",
        _switch("--offline", "contact no provider"),
        model="check this model instead of the configured one",
    )
    add(
        "models",
        "models.usable_models",
        ("settings", "json"),
        "list the models you can use now, with prices",
        _switch("--all", "include models whose key is missing", dest="everything"),
    )
    what = "copy: to another database; files: they are in the folder TARGET from now on"
    add(
        "store",
        "storing.change",
        (),
        "copy a store to another database, or move the files of one on a server",
        _arg("action", choices=["copy", "files"], help=what),
        _arg("source", help="a state folder, or an address: postgresql://user@host/database?schema=name"),
        _arg("target", help="copy: an empty folder or schema, or one with an unfinished copy"),
    )
    add(
        "import",
        _does("importing.import_openclaw", "folder", _here),
        ("state", "store"),
        "import the history of another system",
        _arg("system", choices=["openclaw"], help="the system"),
        _arg("folder", help="its state folder, usually ~/.openclaw"),
    )
    name_of_page = _arg("page", nargs="?", help="the name of a page")
    add("docs", "pages.shown", (), "list the pages of documentation, or print one", name_of_page)
    shell = _arg("shell", choices=["bash", "zsh", "fish"], help="your shell")
    add("completion", _completion, (), "print a completion script: source <(fledge completion bash)", shell)
    quick = _switch("--quick", "fewer and smaller measurements")
    add("bench", _bench, (), "run the benchmarks; needs a checkout of the project", quick)
    kept = "keep the state in this folder (default: a temporary one)"
    add(
        "demo",
        "demo.show",
        ("state",),
        "watch subagents work, get killed with -9, and finish; offline",
        state=kept,
    )
    return parser


def _check_text(options: Namespace) -> None:
    """Refused: an argument that is not valid UTF-8. The folders in `state` and `folder` may have any name."""
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
    """The text on standard input. Refused: it is not UTF-8."""
    try:
        return _checked("standard input", sys.stdin.read())
    except UnicodeDecodeError:
        raise BadInput("standard input", "must be text in UTF-8") from None


def _where(options: Namespace) -> "Where":
    """The folder, store or gateway that a command works with."""
    from fledge.cli.where import where

    settings = getattr(options, "settings", ())
    return where(options.state, options.gateway, options.token_file, settings, os.environ, options.store)


def _here(options: Namespace) -> "Where":
    """The same for a command that uses no gateway."""
    from fledge.cli.where import folder_or_store

    return folder_or_store(options.state, options.store, os.environ)


def _chat(options: Namespace) -> int:
    import asyncio
    import gc

    gc.disable()  # a start leaves no garbage, and the collector would take a tenth of its time
    try:
        from fledge.api.views import session_key
        from fledge.cli import chat

        if options.session is not None:
            session_key(options.session, "--session")
        sitting = chat.sit(_where(options), options.model, options.settings, options.session, gc.enable)
        return asyncio.run(sitting)
    finally:
        gc.enable()


def _run(options: Namespace) -> int:
    import asyncio

    from fledge.api.carried import for_wire, read_files
    from fledge.api.views import session_key
    from fledge.cli import run
    from fledge.cli.ending import until_ended

    prompt = options.prompt
    if options.go_on:
        refused = {"prompt": prompt is not None, "image": options.image, "attachment": options.attach}
        for wanted, given in refused.items():
            if given:
                raise BadInput("--continue", f"takes no {wanted}: it continues unfinished work")
    else:
        is_apart = prompt not in (None, "-")
        prompt = prompt if is_apart else _stdin()
        if not prompt.strip():
            raise BadInput("prompt", "must not be empty: say what to do, or use --continue")
        if is_apart:
            prompt = _with_piped(prompt, options)
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
    return asyncio.run(until_ended(run.converse(_where(options), request, options.settings)))


def _with_piped(prompt: str, options: Namespace) -> str:
    """The prompt with the words on standard input, and a note about these."""
    from fledge.cli.piped import SILENCE_S, quoted, read_piped
    from fledge.core.attachments import size_words

    piped = read_piped(waits=options.piped == "-")
    if piped.is_silent:
        note(
            f"standard input gave nothing for {SILENCE_S:g} s and is left alone; with - behind the prompt it is awaited"
        )
    if not piped.text.strip():
        return prompt
    whole, piped = quoted(prompt, piped)
    size = size_words(len(piped.text.encode()))
    if piped.is_cut:
        note(f"only the first {size} of standard input are added to the prompt")
    elif not options.quiet:
        note(f"{size} of standard input are added to the prompt")
    return whole


def _runs(options: Namespace) -> CommandAnswer:
    """Run `ps` or `tree`."""
    from fledge.cli import verbs

    where = _where(options)
    wanted = verbs.RunsWanted(options.filter, options.search, options.agent, options.session or "", options.limit)
    if not options.watch:
        return verbs.runs(where, options.name, wanted)
    if options.json:
        raise BadInput(
            "--watch", "takes no --json: `fledge run --json` and the gateway's feeds send events to programs"
        )
    from fledge.cli import watching

    return watching.watch(where, options.name, wanted, draws=not options.verbose)


@cache
def _does(function: str, *given: str | Callable[[Namespace], Any]) -> Callable[[Namespace], CommandAnswer]:
    """A command that calls one function of a module of `cli`, such as `verbs.info`, with the values of these options,
    or with values computed from all options."""
    module, _, name = function.partition(".")

    def run(options: Namespace) -> CommandAnswer:
        do: Callable[..., CommandAnswer] = getattr(import_module(f"fledge.cli.{module}"), name)
        return do(*(_said(options, one) if isinstance(one, str) else one(options) for one in given))

    return run


def _said(options: Namespace, name: str) -> Any:
    """The value of an option. Refused: a text for an agent that is empty."""
    value = getattr(options, name)
    if isinstance(value, SaidWords):
        value = _stdin() if value == "-" else str(value)
        if not value.strip():
            raise BadInput(name, "must not be empty")
    return value


def _tell(done: CommandAnswer, options: Namespace) -> int:
    """Print the output of a command, as lines or as JSON; returns the exit code."""
    if isinstance(done, int):
        return done
    shown = done if isinstance(done, CommandOutput) else CommandOutput(done, None)
    if getattr(options, "json", False):
        import json

        say(printable_json(json.dumps(shown.value, indent=2, ensure_ascii=False)))
    else:
        say("\n".join(shown.lines))
    return shown.code


def _trust(options: Namespace) -> list[str]:
    from pathlib import Path

    from fledge.cli import settings, verbs

    folder = Path(options.folder).resolve()
    if options.listed:
        return settings.trusted()
    if options.workspace is not None:
        return settings.trust_workspace(Path(options.workspace).expanduser(), revoke=options.revoke)
    if options.show:
        return settings.show_trust(folder)
    if options.revoke:
        return settings.distrust(folder)
    taken = verbs.take_in(_here(options), folder, is_named=options.state is not None)
    return [*taken, *settings.trust_folder(folder, or_nothing=bool(taken))]


def _completion(options: Namespace) -> list[str]:
    from fledge.cli import completion

    parser = _parser()
    return [completion.script(options.shell, parser, _choices(parser))]


def _bench(options: Namespace) -> int:
    import subprocess
    from pathlib import Path

    root = Path(fledge.__file__).parents[2]
    if not (root / "bench" / "__main__.py").exists():
        raise BadInput(
            "bench", "is part of the project's checkout, not of the installed package: clone it, then make bench"
        )
    command = [sys.executable, "-m", "bench", *(["--quick"] if options.quick else [])]
    return subprocess.run(command, cwd=root, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
