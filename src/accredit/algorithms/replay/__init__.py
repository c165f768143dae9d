"""Algorithms that go on from the prefixes of stored rollouts, without a critic."""
