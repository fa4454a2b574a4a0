from __future__ import annotations

import asyncio
import contextvars
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from steppe.errors import BackendError
from steppe.versions import (
    apply_backend,
    backends,
    effective_backend,
    gym_backend,
    gym_backend_name,
    set_gym_backend,
)
from tests.limits import CHILD


@pytest.fixture
def family(library, choices):
    """The choice is between acme_first and acme_second, which are installed, and acme_third, which is not."""
    library("acme_first", "1.0", module="KIND = 'first'")
    library("acme_second", "2.0", module="KIND = 'second'")
    choices("acme_first", "acme_second", "acme_third")


def name():
    return gym_backend_name()


def test_gymnasium_is_preferred():
    assert backends.GYM_LIBRARIES == ("gymnasium", "gym")


def test_the_first_installed_library_is_the_default(family, choices):
    assert name() == "acme_first"
    choices("acme_third", "acme_second")
    assert name() == "acme_second"


def test_with_holds_inside_and_nests(family):
    with set_gym_backend("acme_second"):
        assert name() == "acme_second"
        with set_gym_backend("acme_first"):
            assert name() == "acme_first"
        assert name() == "acme_second"
    assert name() == "acme_first"


def test_with_ends_at_an_exception(family):
    with pytest.raises(KeyError), set_gym_backend("acme_second"):
        raise KeyError

    assert name() == "acme_first"


def test_one_object_can_be_entered_again_while_it_is_open(family):
    choice = set_gym_backend("acme_second")

    with choice:
        with choice:
            assert name() == "acme_second"
        assert name() == "acme_second"
    assert name() == "acme_first"


def test_a_decorated_function_runs_under_the_choice(family):
    @set_gym_backend("acme_second")
    def fun(value, *, times):
        return name(), value * times

    assert fun(2, times=3) == ("acme_second", 6)
    assert fun.__name__ == "fun"
    assert name() == "acme_first"


def test_a_coroutine_has_its_own_backend(family):
    """A coroutine that runs with another one keeps the backend that it has chosen."""

    async def both():
        started = asyncio.Event()

        async def second():
            with set_gym_backend("acme_second"):
                await started.wait()
                return name()

        async def first():
            started.set()
            return name()

        return await asyncio.gather(second(), first())

    assert asyncio.run(both()) == ["acme_second", "acme_first"]


def test_a_decorated_generator_has_its_own_backend(family):
    """The body of the generator has the backend, and the code that runs it does not."""

    @set_gym_backend("acme_second")
    def echo():
        try:
            sent = yield name()
            yield sent, name()
        except KeyError:
            yield "caught", name()
        return name()

    with set_gym_backend("acme_first"):
        running = echo()
        seen = [next(running), name(), running.send(3), name(), running.throw(KeyError), name()]
        with pytest.raises(StopIteration) as end:
            next(running)

    assert seen == [
        "acme_second",
        "acme_first",
        (3, "acme_second"),
        "acme_first",
        ("caught", "acme_second"),
        "acme_first",
    ]
    assert end.value.value == "acme_second"


def test_a_generator_that_is_given_up_ends_under_its_choice(family):
    ended = []

    @set_gym_backend("acme_second")
    def count():
        try:
            yield 1
        finally:
            ended.append(name())

    running = count()
    next(running)
    running.close()

    assert ended == ["acme_second"]


def test_asynchronous_functions_cannot_be_decorated(family):
    async def coroutine(): ...

    async def generator():
        yield

    for function in (coroutine, generator):
        with pytest.raises(TypeError, match="is asynchronous, which this decorator does not support: write 'with set_"):
            set_gym_backend("acme_second")(function)


def test_backend_returns_the_chosen_library(family):
    import acme_first

    assert set_gym_backend("acme_first").backend is acme_first
    assert set_gym_backend(lambda: acme_first).backend is acme_first
    with pytest.raises(BackendError, match=r"acme_third.*is not installed"):
        set_gym_backend("acme_third").backend  # noqa: B018


def test_set_is_the_default_of_the_process_below_every_with(family):
    with set_gym_backend("acme_first"):
        set_gym_backend("acme_second").set()
        assert name() == "acme_first"

    assert name() == "acme_second"
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(name).result() == "acme_second"


def test_two_threads_have_two_backends_at_once(family):
    inside = threading.Barrier(2)

    def work(backend):
        with set_gym_backend(backend):
            inside.wait(CHILD)
            seen = name()
            inside.wait(CHILD)
        return seen, name()

    with ThreadPoolExecutor(2) as pool:
        results = list(pool.map(work, ["acme_first", "acme_second"]))

    assert results == [("acme_first", "acme_first"), ("acme_second", "acme_first")]


def test_a_thread_can_inherit_the_backend_of_its_starter(family):
    """A copied context passes the choice on to another thread."""
    with ThreadPoolExecutor(1) as pool, set_gym_backend("acme_second"):
        copied = pool.submit(contextvars.copy_context().run, name)
        plain = pool.submit(name)

    assert (copied.result(), plain.result()) == ("acme_second", "acme_first")


def test_the_choice_travels_by_name(family):
    with set_gym_backend("acme_second"):
        assert effective_backend() == "acme_second"

    apply_backend("acme_second")
    assert effective_backend() == name() == "acme_second"
    apply_backend(None)
    assert name() == "acme_second"


def test_without_a_library_no_backend_is_effective(choices):
    choices("acme_third")

    assert effective_backend() is None


def test_a_backend_is_a_name_a_module_or_a_callable(family):
    import acme_second

    for backend in ("acme_second", acme_second, lambda: acme_second):
        with set_gym_backend(backend):
            assert gym_backend() is acme_second


def test_an_unknown_name_is_refused_at_once(family):
    with pytest.raises(BackendError) as error:
        set_gym_backend("acme_secnd")

    assert str(error.value) == (
        "'acme_secnd' is not a gym backend. Choose one of: acme_first, acme_second, acme_third."
    )


def test_a_callable_that_returns_a_stranger_is_refused_on_use(family):
    with pytest.raises(BackendError, match="'threading' is not a gym backend"):
        set_gym_backend(lambda: threading).set()


def test_something_else_than_a_backend_is_refused(family):
    with pytest.raises(BackendError, match="a name, a module or a callable that returns a module, not 3"):
        set_gym_backend(3)


def test_a_backend_that_is_not_installed_is_refused_on_use(family):
    """The error leaves the choice as it was."""
    choice = set_gym_backend("acme_third")

    with pytest.raises(BackendError) as error:
        choice.set()

    assert str(error.value) == "The gym backend 'acme_third' is not installed: pip install acme_third"
    with pytest.raises(BackendError), choice:
        pass
    assert name() == "acme_first"


def test_an_applied_backend_must_be_installed_when_it_is_used(family):
    apply_backend("acme_third")

    with pytest.raises(BackendError, match="The gym backend 'acme_third' is not installed"):
        gym_backend()


def test_an_error_inside_the_library_is_not_hidden(library, choices):
    library("acme_broken", "1.0", module="import acme_nowhere")
    choices("acme_broken")

    with pytest.raises(ModuleNotFoundError, match="acme_nowhere"):
        gym_backend()


def test_without_a_library_the_error_says_what_to_install(choices):
    choices("acme_third", "acme_fourth")

    with pytest.raises(BackendError) as error:
        gym_backend_name()

    assert str(error.value) == "Neither acme_third nor acme_fourth is installed: pip install acme_third"


def test_a_submodule_is_imported_at_need(choices):
    choices("packaging")

    assert gym_backend("version").__name__ == "packaging.version"
    assert gym_backend(".licenses").__name__ == "packaging.licenses"
    with pytest.raises(ModuleNotFoundError):
        gym_backend("nothing_of_that_name")
