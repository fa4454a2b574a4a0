"""Checks of data against specs: at the first steps, and by ``check_env_specs``."""
