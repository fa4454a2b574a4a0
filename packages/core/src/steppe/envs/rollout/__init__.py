"""Rollouts: which code path one takes, the frames that it keeps, policies and random actions."""
