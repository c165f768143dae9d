"""What every verifier asks first: is there anything to score?"""

from accredit.types import Problem, Rollout, StopReason, Verdict


def unscorable(problem: Problem, rollout: Rollout) -> Verdict | None:
    """The verdict on a rollout no answer can be blamed for; None where one can."""
    if rollout.stop_reason is StopReason.FAILURE:
        return Verdict(None, f"the rollout of {problem.id!r} failed before its end")
    return None


def without_gold(problem: Problem) -> Verdict | None:
    """The verdict on a problem that has no answer to compare with."""
    # Dollar signs around nothing are no answer either.
    if problem.answer is None or not problem.answer.strip(" \t\r\n$"):
        return Verdict(None, f"problem {problem.id!r} has no answer to compare with")
    return None
