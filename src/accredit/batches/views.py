"""The same rollouts behind another prompt, for whoever may see more than the policy.

A critic or a teacher with a prompt of its own reads what the policy wrote behind that
prompt. What it says of a token or of a prefix belongs to the same token of the rollout,
at another index; a `View` knows both. Knows no model, no tokenizer and no template.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from accredit.types import Batch, Prompt

ShownPrompt = Callable[[Prompt], Sequence[int]]
"""What is shown in place of a prompt, as token ids of the same vocabulary."""


@dataclass(frozen=True, eq=False)
class View:
    """Rollouts behind another prompt, and the way to and from where they come from."""

    batch: Batch
    """Its prompts hold the ids that are shown."""
    num_prompt_tokens: Int[Tensor, " rollout"]
    """Of the original prompt."""
    lengths: Int[Tensor, " rollout"]
    """Real tokens of the original row."""
    width: int
    """Columns of the original, padding included."""
    offsets: Int[Tensor, " rollout"]
    """Index of a token in the view minus its index in the original."""

    def back(
        self, x: Shaped[Tensor, "rollout view_token"]
    ) -> Shaped[Tensor, "rollout token"]:
        """A per-token result of the view, each where the original has the token.

        0 at the tokens of the prompt and at padding, whatever the view holds there.
        """
        self._require_width(x, self.batch.token_ids.shape[1])
        low, high = self.num_prompt_tokens, self.lengths
        return _moved(x, self.offsets, low, high, self.width)

    def back_values(
        self, values: Float[Tensor, "rollout view_prefix"]
    ) -> Float[Tensor, "rollout prefix"]:
        """A per-prefix result of the view, each where the original has the prefix.

        The prompt and everything longer has a counterpart; shorter prefixes and padding
        get 0.
        """
        self._require_width(values, self.batch.token_ids.shape[1] + 1)
        low, high = self.num_prompt_tokens, self.lengths + 1
        return _moved(values, self.offsets, low, high, self.width + 1)

    def onto(
        self, x: Shaped[Tensor, "rollout token"]
    ) -> Shaped[Tensor, "rollout view_token"]:
        """A per-token tensor of the original where the view has the token, else 0.

        The other direction of `back`: what a critic is taught goes this way.
        """
        self._require_width(x, self.width)
        low = self.num_prompt_tokens + self.offsets
        high = self.lengths + self.offsets
        return _moved(x, -self.offsets, low, high, self.batch.token_ids.shape[1])

    def _require_width(self, x: Tensor, width: int) -> None:
        if x.shape[1] != width:
            raise ValueError(
                f"a tensor that is moved between views must have {width} columns, got "
                f"{x.shape[1]}; `back` takes the view's, `onto` the original's"
            )


def shown(batch: Batch, prompt_ids: ShownPrompt) -> View:
    """The rollouts of `batch` behind `prompt_ids(prompt)`, completions untouched.

    Rewards, verdicts and groups stay; so do the engine's log-probs, which speak about
    the policy's own prompt. Siblings that share a prompt object are shown one.

    Raises:
        ValueError: The batch does not say its prompts, or an empty one is shown.
    """
    if not batch.prompts:
        raise ValueError(
            "a batch must hold its prompts to be shown behind others, got none; "
            "make it with `collate`"
        )
    prompts = _shown_prompts(batch.prompts, prompt_ids)
    device = batch.token_ids.device
    num_prompt = torch.tensor([len(p.token_ids) for p in batch.prompts], device=device)
    num_shown = torch.tensor([len(p.token_ids) for p in prompts], device=device)
    lengths = batch.token_mask.sum(1)
    offsets = num_shown - num_prompt
    width = int((lengths + offsets).max())
    moved = partial(
        _moved, offsets=-offsets, low=num_shown, high=lengths + offsets, width=width
    )
    token_ids = moved(batch.token_ids)
    for row, prompt in enumerate(prompts):
        ids = torch.tensor(prompt.token_ids, device=device)
        token_ids[row, : len(ids)] = ids
    viewed = replace(
        batch,
        token_ids=token_ids,
        token_mask=torch.arange(width, device=device) < (lengths + offsets)[:, None],
        sampled=moved(batch.sampled),
        sampling_logprobs=moved(batch.sampling_logprobs),
        prompts=prompts,
    )
    return View(viewed, num_prompt, lengths, batch.token_ids.shape[1], offsets)


def _shown_prompts(
    prompts: Sequence[Prompt], prompt_ids: ShownPrompt
) -> tuple[Prompt, ...]:
    """What is shown of each row's prompt; asked once for each prompt object."""
    known: dict[int, Prompt] = {}
    for prompt in prompts:
        if id(prompt) not in known:
            known[id(prompt)] = Prompt(prompt.problem, tuple(prompt_ids(prompt)))
    return tuple(known[id(prompt)] for prompt in prompts)


def _moved(
    x: Tensor,
    offsets: Int[Tensor, " rollout"],
    low: Int[Tensor, " rollout"],
    high: Int[Tensor, " rollout"],
    width: int,
) -> Tensor:
    """Column c is column c + offset of `x` where low <= c < high, and 0 elsewhere."""
    columns = torch.arange(width, device=x.device)
    source = (columns + offsets[:, None]).clamp(0, x.shape[1] - 1)
    where = (columns >= low[:, None]) & (columns < high[:, None])
    return x.gather(1, source).masked_fill(~where, 0)
