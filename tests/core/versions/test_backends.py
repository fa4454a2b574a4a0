from __future__ import annotations

import asyncio
import contextvars
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from steppe.errors import BackendError
from steppe.versions import (
    apply_backends,
    backend_module,
    backend_name,
    carry_backends,
    effective_backends,
    register_backend_family,
    set_backend,
)
from tests.limits import CHILD


@pytest.fixture
def family(library):
    """The family "acme": acme_first and acme_second are installed, acme_third is not."""
    library("acme_first", "1.0", module="KIND = 'first'")
    library("acme_second", "2.0", module="KIND = 'second'")
    register_backend_family("acme", ("acme_first", "acme_second", "acme_third"))
    return "acme"


def name():
    return backend_name("acme")


def test_the_first_installed_library_is_the_default(family, library):
    register_backend_family("late", ("acme_third", "acme_second"))

    assert name() == "acme_first"
    assert backend_name("late") == "acme_second"


def test_with_holds_inside_and_nests(family):
    with set_backend("acme", "acme_second"):
        assert name() == "acme_second"
        with set_backend("acme", "acme_first"):
            assert name() == "acme_first"
        assert name() == "acme_second"
    assert name() == "acme_first"


def test_with_ends_at_an_exception(family):
    with pytest.raises(KeyError), set_backend("acme", "acme_second"):
        raise KeyError

    assert name() == "acme_first"


def test_one_object_can_be_entered_again_while_it_is_open(family):
    choice = set_backend("acme", "acme_second")

    with choice:
        with choice:
            assert name() == "acme_second"
        assert name() == "acme_second"
    assert name() == "acme_first"


def test_a_decorated_function_runs_under_the_choice(family):
    @set_backend("acme", "acme_second")
    def fun(value, *, times):
        return name(), value * times

    assert fun(2, times=3) == ("acme_second", 6)
    assert fun.__name__ == "fun"
    assert name() == "acme_first"


def test_a_decorated_coroutine_has_its_own_backend(family):
    """A coroutine that runs with another one keeps its decorated backend."""

    async def both():
        started = asyncio.Event()

        @set_backend("acme", "acme_second")
        async def second():
            await started.wait()
            return name()

        async def first():
            started.set()
            return name()

        return await asyncio.gather(second(), first())

    assert asyncio.run(both()) == ["acme_second", "acme_first"]


def test_a_decorated_generator_has_its_own_backend(family):
    """The body of the generator has the backend, and the code that runs it does not."""

    @set_backend("acme", "acme_second")
    def echo():
        try:
            sent = yield name()
            yield sent, name()
        except KeyError:
            yield "caught", name()
        return name()

    with set_backend("acme", "acme_first"):
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

    @set_backend("acme", "acme_second")
    def count():
        try:
            yield 1
        finally:
            ended.append(name())

    running = count()
    next(running)
    running.close()

    assert ended == ["acme_second"]


def test_an_asynchronous_generator_cannot_be_decorated(family):
    with pytest.raises(TypeError, match="is an asynchronous generator"):

        @set_backend("acme", "acme_second")
        async def fun():
            yield


def test_the_library_that_a_choice_means_is_asked_for(family):
    import acme_first

    assert set_backend("acme", "acme_first").backend is acme_first
    assert set_backend("acme", lambda: acme_first).backend is acme_first
    with pytest.raises(BackendError, match=r"acme_third.*is not installed"):
        set_backend("acme", "acme_third").backend  # noqa: B018


def test_set_is_the_default_of_the_process_below_every_with(family):
    with set_backend("acme", "acme_first"):
        set_backend("acme", "acme_second").set()
        assert name() == "acme_first"

    assert name() == "acme_second"
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(name).result() == "acme_second"


def test_two_threads_have_two_backends_at_once(family):
    inside = threading.Barrier(2)

    def work(backend):
        with set_backend("acme", backend):
            inside.wait(CHILD)
            seen = name()
            inside.wait(CHILD)
        return seen, name()

    with ThreadPoolExecutor(2) as pool:
        results = list(pool.map(work, ["acme_first", "acme_second"]))

    assert results == [("acme_first", "acme_first"), ("acme_second", "acme_first")]


def test_a_thread_can_inherit_the_backend_of_its_starter(family):
    """carry_backends and a copied context pass the choice on to another thread."""
    with ThreadPoolExecutor(1) as pool, set_backend("acme", "acme_second"):
        carried = pool.submit(carry_backends(name))
        copied = pool.submit(contextvars.copy_context().run, name)
        plain = pool.submit(name)

    assert (carried.result(), copied.result(), plain.result()) == ("acme_second", "acme_second", "acme_first")


def test_a_carried_function_keeps_the_backend_of_its_creation(family):
    carried = carry_backends(name)
    set_backend("acme", "acme_second").set()

    assert (carried(), name()) == ("acme_first", "acme_second")


def test_choices_travel_by_name(family):
    register_backend_family("other", ("acme_first", "acme_second"))
    set_backend("acme", "acme_second").set()
    with set_backend("other", "acme_second"):
        choices = effective_backends()

    assert {name: choices[name] for name in ("acme", "other")} == {"acme": "acme_second", "other": "acme_second"}

    apply_backends({"acme": "acme_first", "not declared here yet": "acme_second"})
    assert name() == "acme_first"


def test_effective_backends_leave_out_what_is_not_installed():
    register_backend_family("acme", ("acme_third",))

    assert "acme" not in effective_backends()


def test_a_backend_is_a_name_a_module_or_a_callable(family):
    import acme_second

    for backend in ("acme_second", acme_second, lambda: acme_second):
        with set_backend("acme", backend):
            assert backend_module("acme") is acme_second


def test_a_name_outside_the_family_is_refused_at_once(family):
    with pytest.raises(BackendError) as error:
        set_backend("acme", "acme_secnd")

    assert str(error.value) == (
        "'acme_secnd' is not a backend of the family 'acme' (acme_first, acme_second, acme_third). "
        "Did you mean 'acme_second'?"
    )


def test_a_callable_that_returns_a_stranger_is_refused_on_use(family):
    with pytest.raises(BackendError, match="'threading' is not a backend of the family 'acme'"):
        set_backend("acme", lambda: threading).set()


def test_something_else_than_a_backend_is_refused(family):
    with pytest.raises(BackendError, match="a name, a module or a callable that returns a module, not 3"):
        set_backend("acme", 3)


def test_a_backend_that_is_not_installed_is_refused_on_use(family):
    """The error leaves the choice as it was."""
    choice = set_backend("acme", "acme_third")

    with pytest.raises(BackendError) as error:
        choice.set()

    assert str(error.value) == (
        "The backend 'acme_third' of the family 'acme' is not installed: pip install acme_third"
    )
    with pytest.raises(BackendError), choice:
        pass
    assert name() == "acme_first"


def test_an_applied_backend_must_be_installed_when_it_is_used(family):
    apply_backends({"acme": "acme_third"})

    with pytest.raises(BackendError, match="The backend 'acme_third' of the family 'acme' is not installed"):
        backend_module("acme")


def test_an_error_inside_the_library_is_not_hidden(library):
    library("acme_broken", "1.0", module="import acme_nowhere")
    register_backend_family("acme", ("acme_broken",))

    with pytest.raises(ModuleNotFoundError, match="acme_nowhere"):
        backend_module("acme")


def test_a_family_without_libraries_says_what_to_install():
    register_backend_family("acme", ("acme_third", "acme_fourth"))

    with pytest.raises(BackendError) as error:
        backend_name("acme")

    assert str(error.value) == (
        "No library of the backend family 'acme' is installed (acme_third, acme_fourth): pip install acme_third"
    )


def test_unknown_families_are_named():
    with pytest.raises(BackendError, match=r"'acme' is not a backend family\. Families: gym\."):
        backend_name("acme")


def test_a_family_is_declared_once(family):
    register_backend_family("acme", ("acme_first", "acme_second", "acme_third"))

    with pytest.raises(BackendError, match="cannot be"):
        register_backend_family("acme", ("acme_second",))
    with pytest.raises(BackendError, match="at least one library"):
        register_backend_family("empty", ())


def test_a_submodule_is_imported_at_need():
    register_backend_family("acme", ("packaging",))

    assert backend_module("acme", "version").__name__ == "packaging.version"
    assert backend_module("acme", ".licenses").__name__ == "packaging.licenses"
    with pytest.raises(ModuleNotFoundError):
        backend_module("acme", "nothing_of_that_name")
