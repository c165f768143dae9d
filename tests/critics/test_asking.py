"""A critic asked about token ids that come from no run."""

import pytest
import torch
from critic_cases import critic_of, opinionated, rollouts

from accredit.critics.asking import prefix_values


def test_it_says_of_bare_ids_what_it_says_of_a_batch(policy):
    critic, batch = opinionated(critic_of(policy())), rollouts(5)
    lengths = batch.token_mask.sum(1).tolist()
    rows = [ids[:n].tolist() for ids, n in zip(batch.token_ids, lengths, strict=True)]
    said = prefix_values(critic, rows)
    expected = critic.values(batch, batch.rewards)
    assert len(set(lengths)) > 1
    for row, values in enumerate(said):
        assert len(values) == lengths[row] + 1
        assert values[0] == 0
        torch.testing.assert_close(values, expected[row, : lengths[row] + 1])
    assert float(said[0][1:].std()) > 0


@pytest.mark.parametrize("rows", [[], [[1, 2], []]])
def test_there_must_be_something_to_value(policy, rows):
    with pytest.raises(ValueError, match="rows of at least one token id, got lengths"):
        prefix_values(critic_of(policy()), rows)
