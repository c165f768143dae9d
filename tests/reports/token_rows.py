"""Rows of a rollout file, small enough to be counted by hand."""


def worth_row(**changes) -> dict:
    """A prompt token, two sampled ones with an observation between, one more."""
    row = {
        "step": 1,
        "group": 0,
        "problem_id": "p",
        "prompt": "",
        "completion": "bcde",
        "tokens": ["a", "b", "c", "d", "e"],
        "num_prompt_tokens": 1,
        "sampled": [0, 1, 0, 1, 1],
        "values": [9.0, 0.25, 9.0, 0.5, 0.375, 9.0],
        "advantages": [0.0, 0.75, 0.0, 0.5, 0.625],
        "reward": 1.0,
        "shaped_reward": 1.0,
        "reason": "",
        "stop_reason": "stop",
        "share_f": 1.0,
        "old_logprobs": None,
        "sampling_logprobs": [0.0, -0.5, 0.0, -2.0, -1.25],
    }
    return row | changes
