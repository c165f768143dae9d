"""Mathematics as pure functions of tensors. Needs torch and jaxtyping, nothing else."""
