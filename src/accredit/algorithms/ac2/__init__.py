"""AC2: rollouts stopped early and valued by a critic that is trusted."""
