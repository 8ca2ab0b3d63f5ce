"""What waits for an answer from outside: tool calls, plans, and undelivered results."""

import inspect
from collections.abc import Awaitable, Callable
from typing import Final

from msgspec.structs import replace

from fledge.api import views
from fledge.api.handle import Handle
from fledge.api.runs import Runs, Which
from fledge.api.values import GivenUp, Plan, Question
from fledge.config.permissions import forget, keep, revoke, sound_rules
from fledge.core.permission import Permission, permission
from fledge.errors import BadInput, Refused
from fledge.orchestrator import control, steps
from fledge.orchestrator.commit import Commit
from fledge.store.base import Tx

MOST_WORDS: Final = 4000
"""How long the words are at most that go with a no."""
NO_RULE: Final = (
    "always: no rule can be made of this call. A rule is for one simple command of `exec`, without operators, quotes,"
    " substitutions or redirections, of a program that does not run others; allow it once"
)

Answer = Callable[[Question], bool | Awaitable[bool | None] | None]


class Answering(Runs):
    """The part of `Fledge` that is about what waits for an answer."""

    async def approvals(self, *, decided: bool = False) -> list[Question]:
        """List the tool calls that wait for a person, oldest first.

        With `decided`, list those that no longer wait, newest first, with who or which rule answered them.

        >>> await fl.approvals()
        []
        """
        return await self.engine.store.read(views.decided_questions if decided else views.questions)

    def on_approval(self, answer: Answer) -> None:
        """Let this function answer tool calls that wait for a person; it may be async.

        It returns True to allow the call, False to deny it, None to leave it to someone else. While it is set,
        `Conversation.send` keeps waiting when a person is asked.

        >>> fl.on_approval(lambda question: question.tool == "exec" and "rm " not in question.arguments)
        """
        if not callable(answer):
            raise BadInput("answer", "must be a function that takes a question", answer)
        self._is_asked = True
        self._start(self._ask(answer))

    async def _ask(self, answer: Answer) -> None:
        asked: set[str] = set()

        def new(tx: Tx) -> list[Question] | None:
            return [views.question(tx, one) for one in tx.approvals.open() if one.id not in asked] or None

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

    async def approve(
        self,
        question_id: str,
        *,
        by: str = "program",
        digest: str | None = None,
        always: bool = False,
        children: bool = False,
    ) -> Permission | None:
        """Allow a tool call that waits for a person. Raises `Refused` if it was already answered.

        With `digest`, allow it only if it is still the call that was shown. With `always`, commands that begin with the
        words in `question.always` no longer ask: for this agent, in this folder, and for subagents if `children` is set
        or a subagent asked. Returns the stored rule; raises `Refused` where no rule can be made.

        >>> for question in await fl.approvals():
        ...     rule = await fl.approve(question.id, by="me", digest=question.digest, always=bool(question.always))
        """
        if not always:
            if children:
                raise BadInput("children", "needs always: it says whether the new rule covers subagents", children)
            await self.engine.commit(lambda c: steps.answer(c, question_id, True, by, digest))
            return None
        now, user = self.engine.clock.now(), self._parts.profiles.user
        asked = await self.engine.store.read(lambda tx: steps.open_question(tx, question_id, now, digest))
        if asked.offer is None:
            raise Refused("forbidden", NO_RULE)
        rule = permission(replace(asked.offer, children=asked.offer.children or children), now, by)
        is_new = keep(user, rule)
        try:
            await self.engine.commit(lambda c: steps.answer(c, question_id, True, by, asked.digest, rule=rule.id))
        except BaseException:
            if is_new:
                forget(user, rule)
            raise
        return rule

    async def deny(self, question_id: str, *, by: str = "program", digest: str | None = None, words: str = "") -> None:
        """Deny a tool call that waits for a person. The model reads `words` as the person's reason.

        >>> for question in await fl.approvals():
        ...     await fl.deny(question.id, words="use the test database")
        """
        if not isinstance(words, str) or len(words) > MOST_WORDS:
            raise BadInput("words", f"must be a text of at most {MOST_WORDS} characters", words)
        said = words.strip()
        await self.engine.commit(lambda c: steps.answer(c, question_id, False, by, digest, words=said))

    async def permissions(self) -> list[Permission]:
        """List the rules by which commands run without asking, of all folders and agents, oldest first.

        Raises `BadInput` naming a rule file that cannot be read; such a rule is not applied.

        >>> await fl.permissions()
        []
        """
        return list(sound_rules(self._parts.profiles.user))

    async def revoke_permission(self, rule_id: str) -> Permission:
        """Remove a rule, by its id or the beginning of it: its commands ask again. Raises `NotFound`.

        >>> for rule in await fl.permissions():
        ...     await fl.revoke_permission(rule.id)
        """
        if not isinstance(rule_id, str) or not rule_id.strip():
            raise BadInput("rule_id", "must be the id of a rule, or its beginning", rule_id)
        return revoke(self._parts.profiles.user, rule_id.strip())

    async def plans(self) -> list[Plan]:
        """List the plans that wait for approval, oldest first.

        >>> run = await fl.spawn("Say hello", label="greeting", plan_mode=True)
        >>> plan = await run.plan()
        >>> [plan.label for plan in await fl.plans()]
        ['greeting']
        """
        return await self.engine.store.read(views.plans)

    async def approve_plan(self, which: Which, words: str = "APPROVED: proceed") -> str:
        """Approve a run's plan, so that it is carried out; return the run id of the new attempt.

        Raises `Refused` if no plan waits.

        >>> run = await fl.spawn("Say hello", plan_mode=True)
        >>> plan = await run.plan()
        >>> run_id = await fl.approve_plan(run)
        >>> (await run).status
        'ok'
        """
        return await self._answer_plan(which, True, words)

    async def reject_plan(self, which: Which, reason: str) -> str:
        """Reject a run's plan with a reason, so that it plans again; return the run id of the new attempt.

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

    # ---- undelivered

    async def undelivered(self) -> list[GivenUp]:
        """List undelivered results and messages, oldest first. Each can be retried or dismissed.

        >>> await fl.undelivered()
        []
        """
        return await self.engine.store.read(views.undelivered)

    async def retry(self, which: Which) -> None:
        """Deliver an undelivered result or message again. Raises `Refused` if it is not undelivered.

        >>> for given_up in await fl.undelivered():
        ...     await fl.retry(given_up.key)
        """
        await self.engine.commit(lambda c: control.take_up(c, "retry", _lost(c.tx, which)))

    async def dismiss(self, which: Which) -> None:
        """Remove an undelivered result or message from the list.

        >>> for given_up in await fl.undelivered():
        ...     await fl.dismiss(given_up.key)
        """
        await self.engine.commit(lambda c: control.take_up(c, "dismiss", _lost(c.tx, which)))


def _which(tx: Tx, which: Which) -> str:
    return which.session_key if isinstance(which, Handle) else views.named(tx, which)


def _lost(tx: Tx, which: Which) -> str:
    return which if isinstance(which, str) and tx.outbox.get(which) is not None else _which(tx, which)
