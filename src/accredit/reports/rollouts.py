"""A step's record as rows for `rollouts/`: all that `accredit show` and pages show.

One row a rollout, per-token lists aligned with `token_ids` (`values` has one more):
  step group sample problem_id split answer prompt completion tokens
  num_prompt_tokens token_ids sampled sampling_logprobs old_logprobs logprobs entropies
  values advantages value_targets new_logprobs ratios accepted
  reward shaped_reward outcome_known reason parts stop_reason policy_versions
  share_f reference_shown advantage_unit
and where a critic may end rollouts early (a section of the record)
  ready audited num_replayed prefix_value group_target
  endpoint_value boundary_value boundary_reached
`old_logprobs`, `logprobs` and `entropies` are null where the update was skipped;
`value_targets`, aligned with `values`, where the critic has no parameters;
`new_logprobs`, `ratios` (new policy over old) and `accepted` where no pass was spent on
the policy's change. `outcome_known` is 0 where nothing was verified, or `shaped_reward`
is a critic's word; `share_f` is 1 where a critic valued the rollout, 0 where rewards or
a baseline stand in for one; `reference_shown` is 1 where that critic saw the answer.
Where a critic may end rollouts early, `share_f` is 1 where it was to value the end, and
values that it was not asked for, or did not give, are null.
`advantage_unit` is reward, which the algorithm may have normalised, or nats.
Numbers are rounded to six decimals.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np
from torch import Tensor

from accredit.records import Record
from accredit.reports.metrics.critic import known_outcomes
from accredit.storage.run_directory import RunDirectory

LARGEST = 1e300
"""Beyond it charts and means overflow; NaN is not below it either."""
Decode = Callable[[Sequence[int]], str]
"""Token ids to text, special tokens kept."""


def rollout_rows(
    record: Record,
    step: int,
    decode: Decode,
    read: Callable[[Sequence[Sequence[int]]], list[str]] | None = None,
) -> Iterator[dict[str, Any]]:
    """The rows of one step, in the order of the batch.

    `read` gives completions as the text that was verified; None takes `decode`.

    Raises:
        ValueError: the batch does not hold exactly the rollouts of the groups.
    """
    num_rollouts = sum(len(group.rollouts) for group in record.groups)
    if record.batch.num_rollouts != num_rollouts:
        raise ValueError(
            "the batch must hold every rollout of the groups, got "
            f"{record.batch.num_rollouts} rows and {num_rollouts} rollouts"
        )

    @cache
    def token_text(token_id: int) -> str:
        return decode([token_id])

    known = known_outcomes(record).tolist()
    row = 0
    for index, group in enumerate(record.groups):
        problem = group.prompt.problem
        for rollout, verdict in zip(group.rollouts, group.verdicts, strict=True):
            ids = rollout.token_ids.tolist()
            yield {
                "step": step,
                "group": index,
                "sample": rollout.sample,
                "problem_id": problem.id,
                "split": problem.split,
                "answer": problem.answer,
                "prompt": decode(group.prompt.token_ids),
                "completion": (
                    read([rollout.completion_ids])[0]
                    if read
                    else decode(rollout.completion_ids)
                ),
                "tokens": [token_text(id) for id in ids],
                "num_prompt_tokens": len(group.prompt.token_ids),
                "token_ids": ids,
                "sampled": rollout.sampled.int().tolist(),
                "reward": verdict.reward,
                "shaped_reward": float(record.shaped_rewards[row]),
                "outcome_known": int(known[row]),
                "reason": verdict.reason,
                "parts": dict(verdict.parts),
                "stop_reason": str(rollout.stop_reason),
                "policy_versions": list(rollout.policy_versions),
                "advantage_unit": record.credit.unit,
                **_valuation(record, index, row),
                **_token_columns(record, row, len(ids)),
            }
            row += 1


TEXTS = ("problem_id", "prompt", "reason", "stop_reason")
NUMBERS = ("reward", "endpoint_value", "prefix_value", "share_f", "num_replayed")
"""May be null, or missing."""
COLUMNS = ("sampled", "values", "advantages", "sampling_logprobs")
OPEN_COLUMNS = ("logprobs", "value_targets", "ratios", "accepted")
"""May be null."""


def sound_rollouts(run: RunDirectory, step: int) -> Iterator[dict[str, Any]]:
    """The rows of a kept step that can be shown."""
    return filter(is_sound, run.rollouts(step))


def is_sound(row: dict[str, Any]) -> bool:
    """Whether a row read from a file can be shown: anybody may have edited it."""
    tokens = row.get("tokens")
    if not isinstance(tokens, list) or not all(isinstance(t, str) for t in tokens):
        return False
    lengths = {"values": len(tokens) + 1, "value_targets": len(tokens) + 1}
    opening, replayed = row.get("num_prompt_tokens"), row.get("num_replayed", 0)
    return (
        all(isinstance(row.get(key), str) for key in TEXTS)
        and all(_is_number(row.get(key)) for key in NUMBERS)
        and isinstance(row.get("step"), int)
        and isinstance(row.get("shaped_reward"), int | float)
        and isinstance(opening, int)
        and isinstance(replayed, int)
        and 0 <= opening <= opening + replayed <= len(tokens)
        and isinstance(row.get("advantage_unit", "reward"), str)
        and all(
            _is_column(row.get(key), lengths.get(key, len(tokens))) for key in COLUMNS
        )
        and all(
            row.get(key) is None
            or _is_column(row.get(key), lengths.get(key, len(tokens)))
            for key in OPEN_COLUMNS
        )
    )


def _is_column(column: object, length: int) -> bool:
    if not isinstance(column, list) or len(column) != length:
        return False
    return all(map(_is_number, column))


def _is_number(value: object) -> bool:
    """A number of a size that can be drawn, or null."""
    if not isinstance(value, int | float | None):
        return False
    return value is None or abs(value) <= LARGEST


def _valuation(record: Record, group: int, row: int) -> dict[str, Any]:
    """Who valued a rollout, and what the algorithm has to tell of it besides."""
    found: dict[str, Any] = {
        "share_f": float(record.valued_by_critic),
        "reference_shown": int(record.reference_shown),
    }
    for section in record.sections:
        found |= section.columns(group, row)
    return found


def _token_columns(record: Record, row: int, length: int) -> dict[str, Any]:
    policy, change = record.policy, record.change
    targets = record.credit.value_targets
    columns = {
        "sampling_logprobs": record.batch.sampling_logprobs[row, :length],
        "values": record.values[row, : length + 1],
        "advantages": record.credit.advantages[row, :length],
        "old_logprobs": policy.old_logprobs[row, :length] if policy else None,
        "logprobs": policy.logprobs[row, :length] if policy else None,
        "entropies": policy.entropies[row, :length] if policy else None,
        "value_targets": None if targets is None else targets[row, : length + 1],
        "new_logprobs": change.new_logprobs[row, :length] if change else None,
        "ratios": change.ratios[row, :length] if change else None,
    }
    accepted = change.accepted[row, :length].int().tolist() if change else None
    rounded = {key: _rounded(column) for key, column in columns.items()}
    return rounded | {"accepted": accepted}


def _rounded(column: Tensor | None) -> list[float] | None:
    if column is None:
        return None
    return np.round(column.detach().double().cpu().numpy(), 6).tolist()
