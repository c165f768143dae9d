"""Groups of rollouts as tensors: padding, steps, other prompts, what is stored."""
