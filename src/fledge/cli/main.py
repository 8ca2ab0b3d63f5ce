"""The `fledge` command. Subcommands import what they need when they run, so that `--help` stays quick."""

import argparse
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import fledge
from fledge.errors import BadInput, FledgeError

if TYPE_CHECKING:
    from fledge.cli.verbs import Shown

RUN = "its session key, run id or the beginning of one, or label"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; answers the exit code. What goes wrong is one readable line, never a traceback."""
    options = _parser().parse_args(arguments)
    if options.verbose:
        import logging

        logging.basicConfig(level=logging.INFO if options.verbose == 1 else logging.DEBUG, stream=sys.stderr)
    try:
        _check_text(options)
        return int(options.command(options))
    except FledgeError as error:
        print(f"fledge: {error}", file=sys.stderr)
        if options.verbose:
            import traceback

            traceback.print_exc()
        return 1
    except BrokenPipeError:
        # Whoever read the output has gone, as `head` does: that is no error, and nothing may be written any more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
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
    plain = argparse.ArgumentParser(add_help=False)
    plain.add_argument("--json", action="store_true", help="as JSON, for programs")
    parser = argparse.ArgumentParser(
        prog="fledge", description=f"{fledge.__doc__} Without a command: a conversation.", parents=[state, thinks]
    )
    parser.add_argument("--version", action="version", version=f"fledge {fledge.__version__}")
    _loud(parser, 0)
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

    serve = commands.add_parser(
        "serve", parents=[state, thinks], help="let other programs use this folder: JSON-RPC, feeds, channels"
    )
    serve.add_argument("--host", help="listen on this address (default: gateway.host, this machine alone)")
    serve.add_argument("--port", type=int, help="listen on this port (default: gateway.port); 0: any that is free")
    serve.set_defaults(command=_serve)

    ps = commands.add_parser(
        "ps", parents=[state, plain], help="show the conversation, its runs, and what waits for you"
    )
    ps.set_defaults(command=_ps)
    tree = commands.add_parser("tree", parents=[state, plain], help="show the runs")
    tree.set_defaults(command=_tree)
    info = commands.add_parser("info", parents=[state, plain], help="show one run in full, with its timeline")
    info.add_argument("run", help=RUN)
    info.set_defaults(command=_info)
    log = commands.add_parser("log", parents=[state, plain], help="show the newest of a transcript")
    log.add_argument("run", nargs="?", default="main", help="a run, as for info (default: the main conversation)")
    log.add_argument("-n", dest="last", type=int, default=20, metavar="N", help="how many entries (default: 20)")
    log.add_argument("--tools", action="store_true", help="tool results too")
    log.set_defaults(command=_log)
    lost = commands.add_parser("undelivered", parents=[state, plain], help="show what found nobody, or take one up")
    lost.add_argument("action", nargs="?", choices=["retry", "dismiss"], help="what to do with one")
    lost.add_argument("run", nargs="?", help="which, as for info")
    lost.set_defaults(command=_undelivered)
    sessions = commands.add_parser(
        "sessions", parents=[state, plain], help="show every session, the latest active first"
    )
    sessions.add_argument("-n", dest="last", type=int, default=50, metavar="N", help="how many (default: 50)")
    sessions.set_defaults(command=_sessions)
    agents = commands.add_parser("agents", parents=[thinks, plain], help="show the configured agents")
    agents.set_defaults(command=_agents)
    spawn = commands.add_parser("spawn", parents=[state, thinks, plain], help="start a run and wait for its answer")
    spawn.add_argument("task", help="what it is to do; with -, read from standard input")
    spawn.add_argument("--label", default="", help="a few words to tell it from others")
    spawn.add_argument("--agent", default="main", metavar="ID", help="the agent that does it (default: main)")
    spawn.add_argument("--timeout", type=float, default=0.0, metavar="S", help="end it after so many seconds of work")
    spawn.add_argument("--plan", action="store_true", help="first only plan; exits with 3 and shows the plan")
    spawn.add_argument("--runtime", default="subagent", metavar="NAME", help="a configured runtime")
    spawn.set_defaults(command=_spawn)
    send = commands.add_parser("send", parents=[state, thinks, plain], help="say something and wait for the answer")
    send.add_argument("run", help=f"main, a session key, or a run: {RUN}")
    send.add_argument("message", help="what to say; with -, read from standard input")
    send.set_defaults(command=_send)
    steer = commands.add_parser("steer", parents=[state, plain], help="stop a run and redirect it")
    steer.add_argument("run", help=RUN)
    steer.add_argument("message", help="what it is to do instead")
    steer.set_defaults(command=_steer)
    kill = commands.add_parser("kill", parents=[state, plain], help="end a run and everything below it, silently")
    kill.add_argument("run", help=f"{RUN}; or all")
    kill.set_defaults(command=_kill)
    approve = commands.add_parser(
        "approve", parents=[state, plain], help="let a plan be carried out, or a tool call be run"
    )
    approve.add_argument("run", help=f"{RUN}; or the id of a question")
    approve.add_argument("words", nargs="?", default="", help="something to add")
    approve.set_defaults(command=_approve, yes=True)
    reject = commands.add_parser(
        "reject", parents=[state, plain], help="let a run plan again, or a tool call not be run"
    )
    reject.add_argument("run", help=f"{RUN}; or the id of a question")
    reject.add_argument("words", nargs="?", default="", help="why")
    reject.set_defaults(command=_approve, yes=False)
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
    completion = commands.add_parser("completion", help="print a completion script: source <(fledge completion bash)")
    completion.add_argument("shell", choices=["bash", "zsh", "fish"])
    completion.set_defaults(command=_completion)
    bench = commands.add_parser("bench", help="measure this machine against the bars, from a checkout of the project")
    bench.add_argument("--quick", action="store_true", help="fewer and smaller measurements")
    bench.set_defaults(command=_bench)
    demo = commands.add_parser("demo", help="subagents at work, killed with -9 half-way and started again, offline")
    demo.add_argument("--state", metavar="DIR", help="keep its state in this folder (default: a temporary one)")
    demo.set_defaults(command=_demo)
    for command in commands.choices.values():
        _loud(command, argparse.SUPPRESS)
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


def _loud(parser: argparse.ArgumentParser, default: object) -> None:
    """Before the command or behind it."""
    words = "say more on standard error; -vv: all"
    parser.add_argument("-v", dest="verbose", action="count", default=default, help=words)


def _chat(options: argparse.Namespace) -> int:
    import asyncio

    from fledge.cli import chat, run

    return asyncio.run(chat.sit(run.state_folder(options.state), options.model, tuple(options.settings or ())))


def _run(options: argparse.Namespace) -> int:
    import asyncio

    from fledge.cli import remote, run

    if options.go_on and options.prompt is not None:
        raise BadInput("--continue", "takes no prompt: it finishes what is unfinished")
    prompt = options.prompt
    if not options.go_on and prompt in (None, "-"):
        prompt = _stdin()
    if not options.go_on and not (prompt or "").strip():
        raise BadInput("prompt", "must not be empty: say what to do, or use --continue")
    state = run.state_folder(options.state)
    request = run.Request(state, prompt, options.model, tuple(options.settings or ()))
    return remote.here_or_there(
        state,
        lambda: asyncio.run(run.converse(request)),
        lambda client: remote.converse(client, state, prompt, options.model or ""),
    )


def _serve(options: argparse.Namespace) -> int:
    from fledge.cli import run, serving

    state = run.state_folder(options.state)
    return serving.serve(state, options.model, tuple(options.settings or ()), options.host, options.port)


def _ps(options: argparse.Namespace) -> int:
    from fledge.cli import run, verbs

    folder = run.state_folder(options.state)
    return _tell(verbs.tree(folder) if options.json else verbs.ps(folder), options)


def _tree(options: argparse.Namespace) -> int:
    from fledge.cli import run, verbs

    return _tell(verbs.tree(run.state_folder(options.state)), options)


def _info(options: argparse.Namespace) -> int:
    from fledge.cli import run, verbs

    return _tell(verbs.info(run.state_folder(options.state), options.run), options)


def _log(options: argparse.Namespace) -> int:
    from fledge.cli import run, verbs

    if options.last < 1:
        raise BadInput("-n", "must be 1 or more", options.last)
    return _tell(verbs.log(run.state_folder(options.state), options.run, options.last, options.tools), options)


def _undelivered(options: argparse.Namespace) -> int:
    from fledge.cli import run, verbs

    folder = run.state_folder(options.state)
    if options.action is None:
        return _tell(verbs.undelivered(folder), options)
    if options.run is None:
        raise BadInput("run", f"must be named: fledge undelivered {options.action} RUN")
    return _tell(verbs.take_up(folder, options.action, options.run), options)


def _sessions(options: argparse.Namespace) -> int:
    from fledge.cli import run, verbs

    return _tell(verbs.sessions(run.state_folder(options.state), options.last), options)


def _agents(options: argparse.Namespace) -> int:
    from pathlib import Path

    from fledge.cli import verbs

    return _tell(verbs.agents(Path.cwd(), tuple(options.settings or ())), options)


def _spawn(options: argparse.Namespace) -> int:
    from fledge.cli import run, verbs

    task = verbs.Task(
        task=_words(options.task, "task"),
        label=options.label,
        agent_id=options.agent,
        timeout=options.timeout,
        plan=options.plan,
        runtime=options.runtime,
    )
    folder = run.state_folder(options.state)
    return _tell(verbs.spawn(folder, options.model, tuple(options.settings or ()), task), options)


def _send(options: argparse.Namespace) -> int:
    from fledge.cli import run, verbs

    folder, message = run.state_folder(options.state), _words(options.message, "message")
    settings = tuple(options.settings or ())
    return _tell(verbs.send(folder, options.model, settings, options.run, message), options)


def _steer(options: argparse.Namespace) -> int:
    from fledge.cli import run, verbs

    return _tell(verbs.steer(run.state_folder(options.state), options.run, options.message), options)


def _kill(options: argparse.Namespace) -> int:
    from fledge.cli import run, verbs

    return _tell(verbs.kill(run.state_folder(options.state), options.run), options)


def _approve(options: argparse.Namespace) -> int:
    from fledge.cli import run, verbs

    return _tell(verbs.answer(run.state_folder(options.state), options.run, options.words, options.yes), options)


def _words(given: str, field: str) -> str:
    words = _stdin() if given == "-" else given
    if not words.strip():
        raise BadInput(field, "must not be empty")
    return words


def _tell(shown: "Shown", options: argparse.Namespace) -> int:
    """Print it, as it was asked for."""
    if options.json:
        import json

        print(json.dumps(shown.value, indent=2, ensure_ascii=False))
    else:
        print("\n".join(shown.lines))
    return shown.code


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
