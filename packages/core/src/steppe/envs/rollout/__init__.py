"""Rollouts: which way one takes, the loop over TensorDicts and the one over rows, policies and random actions."""
