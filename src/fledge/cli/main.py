"""The `fledge` command. Subcommands import what they need when they run, so that `--help` stays quick."""

import argparse
import sys
from collections.abc import Sequence

import fledge
from fledge.errors import BadInput, FledgeError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; answers the exit code. What goes wrong is one readable line, never a traceback."""
    options = _parser().parse_args(arguments)
    try:
        return int(options.command(options))
    except FledgeError as error:
        print(f"fledge: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("fledge: stopped; `fledge run --continue` goes on", file=sys.stderr)
        return 130


def _parser() -> argparse.ArgumentParser:
    # Options that are not given are not set, so that they may stand before the command or behind it.
    state = argparse.ArgumentParser(add_help=False, argument_default=argparse.SUPPRESS)
    state.add_argument("--state", metavar="DIR", help="the state folder (default: $FLEDGE_STATE, else ~/.fledge)")
    thinks = argparse.ArgumentParser(add_help=False, argument_default=argparse.SUPPRESS)
    thinks.add_argument(
        "--model", metavar="NAME", help="such as openai/gpt-5, anthropic/claude-sonnet-4-5, ollama/llama3.2"
    )
    thinks.add_argument(
        "--set", dest="settings", metavar="KEY=VALUE", action="append", help="one setting (docs/config.md)"
    )
    parser = argparse.ArgumentParser(
        prog="fledge", description=f"{fledge.__doc__} Without a command: a conversation.", parents=[state, thinks]
    )
    parser.add_argument("--version", action="version", version=f"fledge {fledge.__version__}")
    parser.set_defaults(command=_chat, state=None, model=None, settings=None)
    commands = parser.add_subparsers(metavar="COMMAND")
    chat = commands.add_parser("chat", parents=[state, thinks], help="talk to the main agent, as without a command")
    chat.set_defaults(command=_chat)

    run = commands.add_parser(
        "run", parents=[state, thinks], help="send a prompt, print the answers, return when all is settled"
    )
    run.add_argument("prompt", nargs="?", help="what to say; without it, or with -, it is read from standard input")
    run.add_argument("--continue", dest="go_on", action="store_true", help="say nothing new: finish what is unfinished")
    run.set_defaults(command=_run)

    ps = commands.add_parser("ps", parents=[state], help="show the conversation, its runs, and what waits for you")
    ps.set_defaults(command=_ps)
    tree = commands.add_parser("tree", parents=[state], help="show the runs")
    tree.set_defaults(command=_tree)
    info = commands.add_parser("info", parents=[state], help="show one run in full, with its timeline")
    info.add_argument("run", help="its session key, run id or the beginning of one, or label")
    info.set_defaults(command=_info)
    log = commands.add_parser("log", parents=[state], help="show the newest of a transcript")
    log.add_argument("run", nargs="?", default="main", help="a run, as for info (default: the main conversation)")
    log.add_argument("-n", dest="last", type=int, default=20, metavar="N", help="how many entries (default: 20)")
    log.add_argument("--tools", action="store_true", help="tool results too")
    log.set_defaults(command=_log)
    lost = commands.add_parser("undelivered", parents=[state], help="show results that found nobody, or take one up")
    lost.add_argument("action", nargs="?", choices=["retry", "dismiss"], help="what to do with one")
    lost.add_argument("run", nargs="?", help="which, as for info")
    lost.set_defaults(command=_undelivered)
    init = commands.add_parser("init", help="write a commented settings file into this folder")
    init.add_argument("folder", nargs="?", default=".", help="another folder")
    init.set_defaults(command=_init)
    config = commands.add_parser("config", help="show the settings that apply in this folder, and where they come from")
    config.add_argument("key", nargs="?", help="one setting, such as agents.defaults.subagents.maxConcurrent")
    config.add_argument("--set", dest="settings", metavar="KEY=VALUE", action="append", help="as it would be with this")
    config.set_defaults(command=_config)
    trust = commands.add_parser("trust", help="let this folder's settings count in full, as they are now")
    trust.add_argument("folder", nargs="?", default=".", help="another folder")
    trust.add_argument("--revoke", action="store_true", help="trust it no more")
    trust.add_argument("--list", dest="listed", action="store_true", help="show what is trusted")
    trust.set_defaults(command=_trust)
    doctor = commands.add_parser("doctor", parents=[state], help="check what could keep fledge from working here")
    doctor.add_argument("--model", metavar="NAME", help="check this model rather than the one that is set")
    doctor.set_defaults(command=_doctor)
    importing = commands.add_parser("import", parents=[state], help="read the history of another system")
    importing.add_argument("system", choices=["openclaw"])
    importing.add_argument("folder", help="its state folder, often ~/.openclaw")
    importing.set_defaults(command=_import)
    demo = commands.add_parser("demo", help="a tree of runs, killed with -9 half-way and started again, offline")
    demo.add_argument("--state", metavar="DIR", help="keep its state in this folder (default: a temporary one)")
    demo.set_defaults(command=_demo)
    return parser


def _chat(options: argparse.Namespace) -> int:
    import asyncio

    from fledge.cli import chat, run

    return asyncio.run(chat.sit(run.state_folder(options.state), options.model, tuple(options.settings or ())))


def _run(options: argparse.Namespace) -> int:
    import asyncio

    from fledge.cli import run

    if options.go_on and options.prompt is not None:
        raise BadInput("--continue", "takes no prompt: it finishes what is unfinished")
    prompt = options.prompt
    if not options.go_on and prompt in (None, "-"):
        prompt = sys.stdin.read()
    if not options.go_on and not (prompt or "").strip():
        raise BadInput("prompt", "must not be empty: say what to do, or use --continue")
    state = run.state_folder(options.state)
    return asyncio.run(run.converse(run.Request(state, prompt, options.model, tuple(options.settings or ()))))


def _ps(options: argparse.Namespace) -> int:
    from fledge.cli import inspect, run

    return _show(inspect.look(run.state_folder(options.state), run.ps))


def _tree(options: argparse.Namespace) -> int:
    import time

    from fledge.cli import inspect, run
    from fledge.cli.render import tree_lines
    from fledge.core.keys import main_key

    view = inspect.look(run.state_folder(options.state), lambda tx: tree_lines(tx, main_key(), time.time()))
    return _show(view or ["no runs"])


def _info(options: argparse.Namespace) -> int:
    from fledge.cli import inspect, run

    return _show(inspect.look(run.state_folder(options.state), lambda tx: inspect.info(tx, options.run)))


def _log(options: argparse.Namespace) -> int:
    from fledge.cli import inspect, run

    if options.last < 1:
        raise BadInput("-n", "must be 1 or more", options.last)
    folder = run.state_folder(options.state)
    return _show(inspect.look(folder, lambda tx: inspect.log(tx, options.run, options.last, options.tools)))


def _undelivered(options: argparse.Namespace) -> int:
    from fledge.cli import inspect, run
    from fledge.cli.render import undelivered_lines

    folder = run.state_folder(options.state)
    if options.action is None:
        return _show(inspect.look(folder, undelivered_lines))
    if options.run is None:
        raise BadInput("run", f"must be named: fledge undelivered {options.action} RUN")
    return _show([inspect.take_up(folder, options.action, options.run)])


def _init(options: argparse.Namespace) -> int:
    from pathlib import Path

    from fledge.cli import settings

    return _show(settings.init(Path(options.folder)))


def _config(options: argparse.Namespace) -> int:
    from pathlib import Path

    from fledge.cli import settings

    return _show(settings.show(Path.cwd(), tuple(options.settings or ()), options.key))


def _trust(options: argparse.Namespace) -> int:
    from pathlib import Path

    from fledge.cli import settings

    folder = Path(options.folder).resolve()
    if options.listed:
        return _show(settings.trusted())
    return _show(settings.distrust(folder) if options.revoke else settings.trust_folder(folder))


def _doctor(options: argparse.Namespace) -> int:
    import asyncio
    import os
    from pathlib import Path

    from fledge.cli import doctor, run

    state = run.state_folder(options.state)
    findings = asyncio.run(doctor.examine(Path.cwd(), state, os.environ, options.model))
    _show(doctor.lines(findings))
    return int(any(one.state == "fail" for one in findings))


def _import(options: argparse.Namespace) -> int:
    from pathlib import Path

    from fledge.cli import importing, run

    return _show(importing.import_openclaw(Path(options.folder).expanduser(), run.state_folder(options.state)))


def _show(lines: Sequence[str]) -> int:
    print("\n".join(lines))
    return 0


def _demo(options: argparse.Namespace) -> int:
    from fledge.cli import demo

    return demo.show(options.state)


if __name__ == "__main__":
    sys.exit(main())
