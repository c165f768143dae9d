"""Rollout -> Verdict."""
