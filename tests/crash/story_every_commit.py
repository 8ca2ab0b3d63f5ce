"""Play a story in real processes, end one before or after each of its transactions, start another on what it left, and
judge the end. Prints one JSON line: how many points, and what was wrong.

    python -m tests.crash.story_every_commit STORY [--step K] [--offset I] [--again]

`--step K --offset I` takes every K-th point only; `--again` crashes the recovery too, at a point of its own. Processes
are forked from this one, and time is virtual, so a point takes milliseconds.
"""

import argparse
import json
import mmap
import struct
import sys
import tempfile
from functools import partial
from pathlib import Path

from fledge.testing import START, CrashPoint, InlineStore, SharedClock, VirtualClock, run_virtual
from tests.crash.every_commit import CRASHED, When, in_a_process
from tests.crash.judgement import Left, judge, left
from tests.crash.players import Story, perform
from tests.crash.stories import STORIES
from tests.crash.worktree_story import MORTAL
from tests.empty import MEMORY


def transactions(story: Story) -> int:
    """How many transactions the story takes when nothing goes wrong."""
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        counter = CrashPoint(InlineStore(folder), sys.maxsize, "before")
        run_virtual(perform(story, counter, VirtualClock(), Path(folder)))
        return counter.begun


def play(story: Story, folder: Path, memory: mmap.mmap, nth: int, when: When) -> None:
    """One process's part: the story, with a crash at the chosen transaction."""
    run_virtual(perform(story, CrashPoint(InlineStore(folder), nth, when, CRASHED), SharedClock(memory), folder))


def crash_at(story: Story, nth: int, when: When, again: int) -> list[str]:
    """Crash there, perhaps once more in the recovery, then let it end; answers what is wrong with the end."""
    with tempfile.TemporaryDirectory(dir=MEMORY) as name, mmap.mmap(-1, 8) as memory:
        folder = Path(name)
        memory[:8] = struct.pack("d", START)
        (folder / MORTAL).touch()
        before: list[Left] = []
        for point in (nth, again) if again else (nth,):
            code = in_a_process(partial(play, story, folder, memory, point, when))
            if code not in (CRASHED, 0):
                return [f"a process died with {code}"]
            before.append(left(folder))
        (folder / MORTAL).unlink(missing_ok=True)
        code = in_a_process(partial(play, story, folder, memory, sys.maxsize, "before"))
        if code != 0:
            return [f"the last process died with {code}"]
        store = InlineStore(folder)
        try:
            return store.run(lambda tx: judge(tx, story, folder, before)).wrong
        finally:
            store.close_now()


def main() -> int:
    """Judge all points asked for."""
    parser = argparse.ArgumentParser(prog="python -m tests.crash.story_every_commit")
    parser.add_argument("story", choices=sorted(STORIES))
    parser.add_argument("--step", type=int, default=1)
    parser.add_argument("--offset", type=int, default=0)
    parser.add_argument("--again", action="store_true")
    options = parser.parse_args()
    story = STORIES[options.story]
    total = transactions(story)
    points: list[tuple[int, When]] = [(nth, when) for nth in range(1, total + 1) for when in ("before", "after")]
    chosen = points[options.offset % options.step :: options.step]
    wrong = {
        f"{when} {nth}": found
        for nth, when in chosen
        if (found := crash_at(story, nth, when, 1 + nth % 7 if options.again else 0))
    }
    print(json.dumps({"transactions": total, "points": len(chosen), "wrong": wrong}))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
