"""A conversation spawns an agent that spawns two more and waits for both. A script stands in for the model.

Run it: `python tests/programs/two_levels.py`. It ends by printing the tree and what the conversation was told.
"""

import asyncio
import tempfile

import msgspec

from fledge.api.views import forest
from fledge.commands import lines
from fledge.core.policy import Limits
from fledge.orchestrator import control, spawn
from fledge.orchestrator.engine import Engine
from fledge.store.base import Tx
from fledge.store.sqlite import SqliteStore
from fledge.testing import ScriptedPerformer, Stage

MAIN = "agent:main:main"
LIMITS = Limits(max_depth=2, max_children=5)


async def script(stage: Stage) -> None:
    """What each agent does; a real one would ask a model."""
    children = await stage.engine.store.read(lambda tx: tx.runs.children(stage.session))
    if stage.session == MAIN:
        if not children:
            await stage.spawn("compare two libraries", limits=LIMITS)
        await stage.say("I am on it." if not children else "NO_REPLY")
    elif stage.run is not None and stage.run.terms.depth == 1 and not children:
        await stage.spawn("read the first", limits=LIMITS)
        await stage.spawn("read the second", limits=LIMITS)
        await stage.wait("all")
    elif children:
        await stage.say("SUMMARY: both are read; the second is simpler.")
    else:
        await stage.say("SUMMARY: read it.")


def at_rest(tx: Tx) -> bool:
    """The child's answer is in the conversation, and the conversation has replied."""
    keys = tx.runs.children(MAIN)
    return bool(keys) and tx.turns.get(MAIN) is None and tx.runs.load(keys[0]).phase.name == "completed"


async def main() -> None:
    """Open a store, talk, wait for the answer, look."""
    with tempfile.TemporaryDirectory() as folder:
        store = SqliteStore.open(folder)
        async with Engine(store, ScriptedPerformer(script)) as engine:
            changed = asyncio.Event()
            engine.on_change(lambda key: changed.set())
            await engine.commit(lambda c: spawn.open_conversation(c, MAIN))
            await engine.commit(lambda c: control.send(c, MAIN, "Which library should we use?"))
            while not await store.read(at_rest):
                changed.clear()
                await engine.clock.wait_until(engine.clock.now() + 0.05, changed)
            print("\n".join(await store.read(lambda tx: lines.tree(forest(tx, [MAIN], 100).runs, 0.0))))
            entries = await store.read(lambda tx: tx.transcripts.entries(MAIN))
            told = [msgspec.json.decode(entry.body) for entry in entries if entry.kind == "event"]
            print(f"told once: {len(told)} entry, {len(told[0]['completions'])} completion")
        await store.close()


if __name__ == "__main__":
    asyncio.run(main())
