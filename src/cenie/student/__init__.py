"""The student: networks, rollouts, advantages and PPO. Knows nothing of teachers or domains."""
