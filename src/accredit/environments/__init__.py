"""How a rollout happens."""
