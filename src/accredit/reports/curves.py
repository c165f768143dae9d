"""Which curves a page shows, and what each says in a sentence."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from accredit.reports.plots import curves, logarithmic_curves
from accredit.reports.summary import OVER_ALL, twin

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Curve = tuple[str, str, Callable[[Sequence[dict[str, Any]]], "Figure | None"]]
"""(title, caption, called with the metrics)."""


def reward_curve(metrics: Sequence[dict[str, Any]]) -> "Figure | None":
    """Mean rewards; that over all rollouts where some were left out of the others."""
    lines = [("reward/mean", "raw"), ("reward/shaped_mean", "shaped")]
    if any(twin(row, "reward/mean") is not None for row in metrics):
        lines.append((f"reward/mean{OVER_ALL}", "of all"))
    return curves(metrics, lines, "mean reward")


CURVES: tuple[Curve, ...] = (
    (
        "Reward",
        "As verified, before any shaping. It should rise.",
        reward_curve,
    ),
    (
        "Length",
        "All rollouts, truncated ones included; the band spans shortest to longest.",
        partial(
            curves,
            lines=(("length/mean", "mean"),),
            ylabel="sampled tokens a rollout",
            band=("length/min", "length/max"),
        ),
    ),
    (
        "Entropy",
        "Falling slowly is learning; near zero, the policy has stopped exploring.",
        partial(
            curves,
            lines=(("policy/entropy_mean", "policy"),),
            ylabel="nats a token",
        ),
    ),
    (
        "Lost signal",
        "Shares of rollouts, or of groups whose rewards were all equal.",
        partial(
            curves,
            lines=(
                ("group/all_equal_share", "equal groups"),
                ("length/truncated_share", "truncated"),
                ("reward/invalid_share", "not verified"),
            ),
            ylabel="share",
        ),
    ),
    (
        "Divergence",
        "Mean k3 of the update's step, and of trainer against engine (below 0.015).",
        partial(
            logarithmic_curves,
            lines=(
                ("policy/kl_k3_mean", "update"),
                ("mismatch/kl_k3_mean", "engine gap"),
            ),
            ylabel="nats a token, logarithmic",
        ),
    ),
    (
        "Update",
        "Gradient norm before clipping.",
        partial(
            curves,
            lines=(("policy/gradient_norm", "gradient"),),
            ylabel="L2 norm",
        ),
    ),
)

CRITIC_CURVES: tuple[Curve, ...] = (
    (
        "Foresight",
        "1 is perfect. Below 0, a constant would have predicted better.",
        partial(
            curves,
            lines=(
                ("critic/explained_variance", "explained variance"),
                ("critic/correlation", "correlation"),
            ),
            ylabel="against the outcome",
            reference=0.0,
        ),
    ),
    (
        "Error",
        "Bias is value minus outcome: above 0 the critic hopes too much. Wins − losses "
        "is the mean value in successes less that in failures.",
        partial(
            curves,
            lines=(
                ("critic/mae", "mean |error|"),
                ("critic/bias", "bias"),
                ("critic/value_gap", "wins − losses"),
                ("critic/constant_mae", "a constant's"),
            ),
            ylabel="reward units",
            reference=0.0,
        ),
    ),
    (
        "Credit a token",
        "Mean |V(t) − V(t−1)|, and the most that it can be where V is exact.",
        partial(
            curves,
            lines=(
                ("credit/step_abs_mean", "measured"),
                ("credit/step_abs_bound", "most if exact"),
            ),
            ylabel="reward units",
        ),
    ),
    (
        "Large credits",
        "Tokens a rollout with |V(t) − V(t−1)| above 0.1: where V is exact, at most "
        "Var(R) / 0.01, whatever the length (Theorem 4).",
        partial(
            curves,
            lines=(
                ("credit/step_large_mean", "measured"),
                ("credit/step_large_bound", "most if exact"),
            ),
            ylabel="tokens a rollout",
        ),
    ),
    (
        "Its loss",
        "Falls while it learns; what no critic can foresee remains.",
        partial(
            curves,
            lines=(("critic/loss", "loss"),),
            ylabel="as minimised",
        ),
    ),
    (
        "Its correction",
        "Ratios of the new policy to the old one on the tokens it was trained on.",
        partial(
            logarithmic_curves,
            lines=(
                ("critic/ratio_max", "largest ratio"),
                ("critic/ratio_mean", "mean ratio"),
            ),
            ylabel="ratio, logarithmic",
        ),
    ),
)

ROUTING_CURVES: tuple[Curve, ...] = (
    (
        "Readiness and tokens saved",
        "Problems that the critic is trusted with, groups of a step that were of "
        "these, and what stopping them early saved of what would have been decoded.",
        partial(
            curves,
            lines=(
                ("readiness/share", "problems ready"),
                ("readiness/sampled_share", "groups ready"),
                ("tokens/saved_share", "tokens saved"),
            ),
            ylabel="share",
        ),
    ),
    (
        "Error at the replayed prefix",
        "Mean |V − what came|. Against itself it can only be consistent: accuracy is "
        "the error against rewards.",
        partial(
            curves,
            lines=(
                ("ac2/error_rewards", "against rewards"),
                ("ac2/error_self", "against itself"),
                ("ac2/error_audited", "of audits"),
            ),
            ylabel="reward units",
        ),
    ),
    (
        "Hacking gap",
        "V where audited rollouts would have been stopped, minus what they earned. "
        "Above 0 for long, the policy writes what the critic likes.",
        partial(
            curves,
            lines=(("ac2/hacking_gap", "value − reward"),),
            ylabel="reward units",
            reference=0.0,
        ),
    ),
    (
        "Where stopping costs",
        "Stopped groups whose ends were all worth the same, answers of the critic that "
        "were not valid, and gradient tokens of stopped rollouts.",
        partial(
            curves,
            lines=(
                ("ac2/equal_values_share", "equal values"),
                ("ac2/invalid_share", "invalid answers"),
                ("ac2/chunk_token_share", "tokens stopped"),
            ),
            ylabel="share",
        ),
    ),
)
"""Of runs whose critic may end rollouts early; nothing of all others."""
