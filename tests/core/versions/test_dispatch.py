from __future__ import annotations

import inspect
import pickle
import re
import sys

import cloudpickle
import pytest

from steppe.errors import BackendError, IgnoredArgumentWarning, NoImplementation
from steppe.versions import implement_for, set_gym_backend


@implement_for("packaging", None, "1.0")
def at_module_level():
    return "old"


@implement_for("packaging", "1.0")
def at_module_level():
    return "new"


class Outer:
    class Inner:
        @implement_for("packaging", None, "1.0")
        def method(self, value):
            return "old", value

        @implement_for("packaging", "1.0")
        def method(self, value):
            return "new", value

        @classmethod
        @implement_for("packaging", None, "1.0")
        def under_classmethod(cls):
            return "old", cls

        @classmethod
        @implement_for("packaging", "1.0")
        def under_classmethod(cls):
            return "new", cls

        @implement_for("packaging", None, "1.0")
        @classmethod
        def over_classmethod(cls):
            return "old", cls

        @implement_for("packaging", "1.0")
        @classmethod
        def over_classmethod(cls):
            return "new", cls

        @implement_for("packaging", None, "1.0", class_method=True)
        def by_argument(cls):
            return "old", cls

        @implement_for("packaging", "1.0", class_method=True)
        def by_argument(cls):
            return "new", cls

        @implement_for("packaging", None, "1.0")
        @staticmethod
        def over_staticmethod(value):
            return "old", value

        @implement_for("packaging", "1.0")
        @staticmethod
        def over_staticmethod(value):
            return "new", value

        @property
        @implement_for("packaging", None, "1.0")
        def under_property(self):
            return "old"

        @property
        @implement_for("packaging", "1.0")
        def under_property(self):
            return "new"


class Child(Outer.Inner):
    @implement_for("packaging", "1.0")
    def method(self, value):
        return "child", super().method(value)


@pytest.mark.parametrize(
    ("version", "expected"), [("0.25.2", 0), ("0.26.0rc1", 0), ("0.26.0", 1), ("0.26.2", 1), ("1.0.0", 1)]
)
def test_the_installed_version_chooses_the_row(library, version, expected):
    library("acme", version)

    @implement_for("acme", None, "0.26.0")
    def fun():
        return 0

    @implement_for("acme", "0.26.0", None)
    def fun():
        return 1

    assert fun() == expected


def test_the_order_of_declaration_does_not_matter(library):
    library("acme", "0.5")

    @implement_for("acme", "0.26.0")
    def fun():
        return 1

    @implement_for("acme", None, "0.26.0")
    def fun():
        return 0

    assert fun() == 0


def test_functions_methods_class_methods_and_nested_classes():
    inner = Outer.Inner()

    assert at_module_level() == "new"
    assert inner.method(3) == ("new", 3)
    assert inner.under_classmethod() == Outer.Inner.over_classmethod() == ("new", Outer.Inner)
    assert inner.by_argument() == Outer.Inner.by_argument() == ("new", Outer.Inner)
    assert inner.over_staticmethod(4) == Outer.Inner.over_staticmethod(value=4) == ("new", 4)
    assert inner.under_property == "new"


class Registered:
    @implement_for("packaging")
    def method(self, value):
        return "base", value

    @method.register(to_version="1.0")
    def _(self, value):
        return "old", value

    @method.register(from_version="1.0")
    def _(self, value):
        return "new", value


def test_rows_are_registered_with_a_definition_under_any_name():
    @implement_for("packaging")
    def fun():
        return "base"

    assert fun() == "base"

    @fun.register(from_version="999")
    def _():
        return "later"

    assert fun() == "base"

    @fun.register("1.0", "999")
    def now():
        return "now"

    assert fun() == now() == "now"
    assert Registered().method(2) == ("new", 2)
    with pytest.raises(ValueError, match="would overlap"):
        fun.register("998")(lambda: "too much")


def test_compilable_warns_and_has_no_effect():
    with pytest.warns(IgnoredArgumentWarning, match="compilable has no effect.*looked up at each call"):

        @implement_for("packaging", compilable=True)
        def fun():
            return 1

    assert fun() == 1


def test_a_subclass_adds_implementations_to_its_parents():
    """A subclass adds implementations, and can call those of its parent."""
    assert Child().method(1) == ("child", ("new", 1))
    assert Outer.Inner().method(1) == ("new", 1)
    assert Child.over_classmethod() == ("new", Child)


def test_rows_of_two_scopes_with_one_name_stay_apart():
    def scope(from_version):
        @implement_for("packaging", from_version)
        def fun():
            return from_version

        return fun

    first, second = scope("1.0"), scope("2.0")

    assert (first(), second()) == ("1.0", "2.0")


@pytest.mark.parametrize(("version", "body"), [("0.9", "outside"), ("1.5", "inside"), ("2.1", "outside")])
def test_several_decorators_give_one_body_several_ranges(library, version, body):
    library("acme", version)

    @implement_for("acme", None, "1.0")
    @implement_for("acme", "2.0")
    def fun():
        return "outside"

    @implement_for("acme", "1.0", "2.0")
    def fun():
        return "inside"

    assert fun() == body


def test_an_imported_function_of_the_same_name_is_left_alone():
    namespace = {
        "at_module_level": at_module_level,
        "implement_for": implement_for,
        "__name__": "elsewhere",
    }
    source = "@implement_for('packaging', '0.5')\ndef at_module_level(): return 'elsewhere'"

    exec(source, namespace)

    assert namespace["at_module_level"]() == "elsewhere"
    assert at_module_level() == "new"


def test_the_same_range_declared_again_replaces(library):
    library("acme", "0.26.2")

    @implement_for("acme", "0.26")
    def fun():
        return "first"

    assert fun() == "first"

    @implement_for("acme", "0.26.0")
    def fun():
        return "again"

    assert fun() == "again"


def test_an_overlapping_range_is_refused_at_declaration():
    @implement_for("acme", "0.13", "0.26")
    def fun():
        return 0

    text = (
        "fun is implemented for acme>=0.13,<0.26 already; one for acme>=0.25 would overlap it. Narrow one of the two."
    )
    with pytest.raises(ValueError, match=re.escape(text)):

        @implement_for("acme", "0.25")
        def fun():
            return 1


def test_a_version_outside_every_row_is_named_with_the_rows(library, choices):
    library("acme_gym", "0.12.5")
    choices("acme_gymnasium", "acme_gym")

    @implement_for("acme_gym", "0.13", "0.26")
    @implement_for("acme_gym", "0.26")
    @implement_for("acme_gymnasium", "0.27")
    def reset_env():
        return None

    with pytest.raises(NoImplementation) as error:
        reset_env()

    assert str(error.value) == (
        "reset_env has no implementation for acme_gym 0.12.5. "
        "Implemented for acme_gymnasium>=0.27; acme_gym>=0.26; acme_gym>=0.13,<0.26."
    )


def test_a_missing_library_is_named():
    @implement_for("acme_nowhere")
    def fun():
        return None

    with pytest.raises(NoImplementation) as error:
        fun()

    assert str(error.value) == (
        "fun has no implementation for acme_nowhere, which is not installed. Implemented for any acme_nowhere."
    )


def test_an_error_names_the_libraries_if_none_is_installed(choices):
    choices("acme_first", "acme_second")

    @implement_for("acme_first", "2")
    @implement_for("acme_second")
    def fun():
        return None

    with pytest.raises(NoImplementation) as error:
        fun()

    assert str(error.value) == (
        "fun has no implementation for acme_first and acme_second, of which none is installed. "
        "Implemented for any acme_second; acme_first>=2."
    )


@pytest.fixture
def two(library, choices):
    """The choice is between two libraries, of which the first is used."""
    library("acme_a", "1.0")
    library("acme_b", "5.0")
    choices("acme_a", "acme_b")


@pytest.mark.usefixtures("two")
def test_the_backend_chooses_between_several_libraries():
    @implement_for("acme_a")
    def fun():
        return "a"

    @implement_for("acme_b", None, "5")
    def fun():
        return "old b"

    @implement_for("acme_b", "5")
    def fun():
        return "b"

    assert fun() == "a"
    with set_gym_backend("acme_b"):
        assert fun() == "b"
    assert fun() == "a"


@pytest.mark.usefixtures("two")
def test_rows_for_one_library_ignore_the_backend():
    @implement_for("acme_b")
    def fun():
        return "b"

    assert fun() == "b"
    with set_gym_backend("acme_a"):
        assert fun() == "b"


def test_a_backend_without_a_row_is_an_error(library, choices):
    library("acme_a", "1.0")
    library("acme_b", "1.0")
    library("acme_c", "1.0")
    choices("acme_a", "acme_b", "acme_c")

    @implement_for("acme_a")
    @implement_for("acme_b", "0.5")
    def fun():
        return None

    with (
        set_gym_backend("acme_c"),
        pytest.raises(NoImplementation, match=r"for acme_c 1\.0\. Implemented for acme_b>=0\.5; any acme_a\."),
    ):
        fun()


def test_only_gym_libraries_are_chosen_by_backend():
    @implement_for("acme_a")
    @implement_for("acme_b")
    def fun():
        return None

    with pytest.raises(BackendError) as error:
        fun()

    assert str(error.value) == (
        "fun is implemented for acme_a and acme_b. A function can have implementations for several libraries only if "
        "these are gymnasium and gym."
    )


def test_a_library_is_named_by_module_or_by_callable():
    import packaging

    def missing():
        import acme_nowhere

        return acme_nowhere

    @implement_for(packaging, "1.0", "9")
    @implement_for(lambda: packaging, "9")
    def fun():
        return "found"

    @implement_for(missing)
    def none():
        return None

    assert fun() == "found"
    with pytest.raises(NoImplementation, match="acme_nowhere, which is not installed"):
        none()


def test_nothing_is_imported_to_choose(library):
    library("acme_lazy", "1.0", module="raise RuntimeError('imported')")

    @implement_for("acme_lazy", "1.0")
    def fun():
        return "chosen"

    assert fun() == "chosen"
    assert "acme_lazy" not in sys.modules


def test_the_choice_is_made_once(library):
    """A library that is replaced on the disk keeps its implementation: what was imported stays as it was."""
    library("acme", "1.0")

    @implement_for("acme", None, "2.0")
    def fun():
        return "old"

    @implement_for("acme", "2.0")
    def fun():
        return "new"

    assert fun() == "old"
    library("acme", "2.0")
    assert fun() == "old"


def test_implement_for_keeps_name_docstring_and_signature():
    @implement_for("packaging")
    def fun(value: int, *, other: str = "x") -> str:
        """What it does."""
        return other

    assert (fun.__name__, fun.__doc__) == ("fun", "What it does.")
    assert list(inspect.signature(fun).parameters) == ["value", "other"]


def test_pickle_by_name_and_cloudpickle_by_value():
    @implement_for("packaging", "1.0")
    def local():
        return "by value"

    assert pickle.loads(pickle.dumps(at_module_level)) is at_module_level
    assert cloudpickle.loads(cloudpickle.dumps(local))() == "by value"
