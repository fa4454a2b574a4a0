"""``steppe check`` and ``steppe collect``: try an environment, and collect data of it."""
