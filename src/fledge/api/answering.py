"""What waits for an answer from outside: tool calls, plans, and results that found nobody."""

import inspect
from collections.abc import Awaitable, Callable

from fledge.api import views
from fledge.api.handle import Handle
from fledge.api.runs import Runs, Which
from fledge.api.values import GivenUp, Plan, Question
from fledge.errors import BadInput
from fledge.orchestrator import control, steps
from fledge.orchestrator.commit import Commit
from fledge.store.base import Tx

Answer = Callable[[Question], bool | Awaitable[bool | None] | None]


class Answering(Runs):
    """The part of `Fledge` that is about what waits for an answer."""

    async def approvals(self) -> list[Question]:
        """Tool calls that wait for a person, oldest first.

        >>> await fl.approvals()
        []
        """
        return await self.engine.store.read(views.questions)

    def on_approval(self, answer: Answer) -> None:
        """Ask this function about each tool call that waits for a person, awaited if it is async: True lets the call be
        run, False does not, None leaves it to somebody else. `send` then waits through such questions.

        >>> fl.on_approval(lambda question: question.tool == "exec" and "rm " not in question.arguments)
        """
        if not callable(answer):
            raise BadInput("answer", "must be a function that takes a question", answer)
        self._is_asked = True
        self._start(self._ask(answer))

    async def _ask(self, answer: Answer) -> None:
        asked: set[str] = set()

        def new(tx: Tx) -> list[Question] | None:
            return [views.question(one) for one in tx.open_approvals() if one.id not in asked] or None

        while True:
            for question in await self._watch.until(new, None) or ():
                asked.add(question.id)
                self._start(self._ask_about(question, answer))

    async def _ask_about(self, question: Question, answer: Answer) -> None:
        said = answer(question)
        if inspect.isawaitable(said):
            said = await said
        if isinstance(said, bool):
            act = self.approve if said else self.deny
            await act(question.id, digest=question.digest)

    async def approve(self, question_id: str, *, by: str = "program", digest: str | None = None) -> None:
        """Let the call be run. With `digest`, only if it is still the call that was shown. `Refused` if it is decided.

        >>> for question in await fl.approvals():
        ...     await fl.approve(question.id, by="me", digest=question.digest)
        """
        await self.engine.commit(lambda c: steps.answer(c, question_id, True, by, digest))

    async def deny(self, question_id: str, *, by: str = "program", digest: str | None = None) -> None:
        """The call is not run; the model is told so.

        >>> for question in await fl.approvals():
        ...     await fl.deny(question.id)
        """
        await self.engine.commit(lambda c: steps.answer(c, question_id, False, by, digest))

    async def plans(self) -> list[Plan]:
        """Plans that await an answer, oldest first.

        >>> run = await fl.spawn("Say hello", label="greeting", plan_mode=True)
        >>> plan = await run.plan()
        >>> [plan.label for plan in await fl.plans()]
        ['greeting']
        """
        return await self.engine.store.read(views.plans)

    async def approve_plan(self, which: Which, words: str = "APPROVED: proceed") -> str:
        """Let the plan be carried out; answers the new attempt's run id. `Refused` if no plan awaits an answer.

        >>> run = await fl.spawn("Say hello", plan_mode=True)
        >>> plan = await run.plan()
        >>> run_id = await fl.approve_plan(run)
        >>> (await run).status
        'ok'
        """
        return await self._answer_plan(which, True, words)

    async def reject_plan(self, which: Which, reason: str) -> str:
        """Let it plan again, with the reason; answers the new attempt's run id.

        >>> run = await fl.spawn("Say hello", plan_mode=True)
        >>> plan = await run.plan()
        >>> run_id = await fl.reject_plan(run, "too short")
        """
        if not isinstance(reason, str) or not reason.strip():
            raise BadInput("reason", "must say why the plan is rejected", reason)
        return await self._answer_plan(which, False, reason)

    async def _answer_plan(self, which: Which, approve: bool, words: str) -> str:
        def answer(c: Commit) -> str:
            return control.answer_plan(c, _which(c.tx, which), approve, words).run_id

        return await self.engine.commit(answer)

    # ---- what found nobody

    async def undelivered(self) -> list[GivenUp]:
        """Results and messages that were given up on, each kind oldest first: each can be retried or dismissed.

        >>> await fl.undelivered()
        []
        """
        return await self.engine.store.read(views.undelivered)

    async def retry(self, which: Which) -> None:
        """Offer a given-up result, or a message by its key, again. `Refused` if nothing of it is undelivered.

        >>> for given_up in await fl.undelivered():
        ...     await fl.retry(given_up.key)
        """
        await self.engine.commit(lambda c: control.take_up(c, "retry", _lost(c.tx, which)))

    async def dismiss(self, which: Which) -> None:
        """Take a given-up result, or a message by its key, off the list.

        >>> for given_up in await fl.undelivered():
        ...     await fl.dismiss(given_up.key)
        """
        await self.engine.commit(lambda c: control.take_up(c, "dismiss", _lost(c.tx, which)))


def _which(tx: Tx, which: Which) -> str:
    return which.session_key if isinstance(which, Handle) else views.named(tx, which)


def _lost(tx: Tx, which: Which) -> str:
    return which if isinstance(which, str) and tx.find_post(which) is not None else _which(tx, which)
