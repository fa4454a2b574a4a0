"""Which library makes an environment, and which body of a function runs with its version."""

import gymnasium
from environments import GymEnv, GymWrapper, gym_backend, implement_for, set_gym_backend


@implement_for("gymnasium", None, "0.28")
def generation():
    return "before 0.28"


@implement_for("gymnasium", "0.28")
def generation():  # noqa: F811
    return "0.28 and later"


@implement_for("gym")
def either():
    return "gym"


@implement_for("gymnasium")
def either():  # noqa: F811
    return "gymnasium"


@implement_for("numpy")
def base():
    raise NotImplementedError


@base.register(to_version="1.0")
def _():
    return "before 1.0"


@base.register(from_version="1.0")
def _():
    return "1.0 and later"


class Reader:
    @implement_for("gymnasium", None, "0.28")
    def read(self, value):
        return "old", value

    @implement_for("gymnasium", "0.28", None)
    def read(self, value):  # noqa: F811
        return "new", value

    @implement_for("gymnasium", None, "0.28", class_method=True)
    def made(cls):
        return "old", cls.__name__

    @implement_for("gymnasium", "0.28", class_method=True)
    def made(cls):  # noqa: F811
        return "new", cls.__name__


@set_gym_backend("gymnasium")
def decorated():
    return gym_backend().__name__, either(), GymEnv("CartPole-v1").lib.__name__


@set_gym_backend("gymnasium")
def generated():
    yield gym_backend().__name__
    yield either()


def run():
    found = {"decorated": decorated(), "generated": list(generated())}
    with set_gym_backend("gymnasium"):
        found["inside"] = (gym_backend().__name__, gym_backend("spaces").__name__, either(), generation())
    with set_gym_backend(gymnasium), set_gym_backend(lambda: gymnasium):
        found["by module and by function"] = (gym_backend().__name__, either())
    set_gym_backend("gymnasium").set()
    found["from now on"] = (gym_backend().__name__, gym_backend("wrappers").__name__, either())
    found["asked"] = set_gym_backend("gymnasium").backend.__name__
    found["methods"] = (Reader().read(3), Reader.made())
    found["registered"] = base()
    env = GymEnv("CartPole-v1", backend="gymnasium")
    found["library"] = (env.lib.__name__, env.libname, GymEnv.get_library_name(env._env))
    with set_gym_backend(GymWrapper.get_library_name(gymnasium.make("Pendulum-v1"))):
        found["of an object"] = tuple(GymWrapper(gymnasium.make("Pendulum-v1")).rollout(3).shape)
    return found
