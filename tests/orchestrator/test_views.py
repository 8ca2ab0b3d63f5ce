"""What a session is told of its children, however many it has; which words are a child's result."""

from contextlib import closing
from functools import partial

from fledge.core.prompts import BLOCK_ROWS, children_block
from fledge.orchestrator.views import child_rows, children_shown
from fledge.orchestrator.visibility import Looker, result_text
from tests.model.world import MAIN
from tests.orchestrator.scene import Scene


def check(scene: Scene) -> set[str]:
    now = scene.clock.now()
    rows = scene.read(partial(child_rows, session=MAIN))
    assert scene.read(partial(children_shown, session=MAIN, now=now)) == children_block(rows, now)
    return {row.status for row in rows}


def test_what_a_prompt_says_of_a_crowd_is_what_a_list_of_all_of_them_would_say() -> None:
    with closing(Scene()) as scene:
        main = scene.main()
        assert check(scene) == set()
        for number in range(BLOCK_ROWS + 10):
            child = scene.start(scene.spawn(main))
            if number == 3:
                scene.start(scene.spawn(child))
            scene.finish(child)
            check(scene)
        scene.spawn(main)
        assert check(scene) == {"done", "waiting", "queued"}


def test_of_a_result_that_came_late_the_late_words_are_read() -> None:
    with closing(Scene()) as scene:
        run = scene.orchestrator()
        scene.fail(run, "lost the connection")

        def read() -> tuple[str, str]:
            return scene.read(lambda tx: result_text(tx, Looker(session=MAIN), run.session))

        assert read() == (run.session, "lost the connection")
        scene.read_main()
        scene.complete_late(run.session, "late words")
        assert [row.kind for row in scene.unread(MAIN)] == ["late"]
        assert read() == (run.session, "late words")
