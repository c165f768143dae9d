"""What the folders of a run are called."""

CHECKPOINTS = "checkpoints"
"""Of a run: one folder a saved step."""
MODEL_FOLDER = "model"
"""Of a checkpoint: the policy, a plain Hugging Face directory."""
CRITIC_FOLDER = "critic"
"""Of a checkpoint: the critic, where it has parameters."""
