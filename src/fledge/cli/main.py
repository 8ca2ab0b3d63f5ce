"""The `fledge` command. Subcommands import what they need when they run, so that `--help` stays quick."""

import argparse
import sys
from collections.abc import Sequence

import fledge
from fledge.errors import FledgeError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; answers the exit code. What goes wrong is one readable line, never a traceback."""
    options = _parser().parse_args(arguments)
    try:
        if options.command == "demo":
            from fledge.cli import demo

            return demo.show(options.state)
        return _tree(options.state)
    except FledgeError as error:
        print(f"fledge: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="fledge", description=fledge.__doc__)
    parser.add_argument("--version", action="version", version=f"fledge {fledge.__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    demo = commands.add_parser("demo", help="a tree of runs, killed with -9 half-way and started again, offline")
    demo.add_argument("--state", metavar="DIR", help="keep its state in this folder (default: a temporary one)")
    tree = commands.add_parser("tree", help="show the runs in a state folder")
    tree.add_argument("--state", metavar="DIR", required=True, help="the state folder")
    return parser


def _tree(folder: str) -> int:
    import asyncio
    from pathlib import Path

    from fledge.cli.render import tree_lines
    from fledge.core.keys import main_key
    from fledge.errors import StoreError
    from fledge.store.sqlite import DATABASE, SqliteStore

    if not (Path(folder) / DATABASE).exists():
        raise StoreError(f"{folder}: no {DATABASE} there; name the folder that holds it with --state")

    async def look() -> list[str]:
        store = SqliteStore.open(folder)
        try:
            return await store.read(lambda tx: tree_lines(tx, main_key()))
        finally:
            await store.close()

    print("\n".join(asyncio.run(look()) or ["no runs"]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
