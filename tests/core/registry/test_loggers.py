from __future__ import annotations

import sys

import pytest

import steppe.loggers
from steppe import errors
from steppe.loggers import make_logger
from steppe.registry import list_loggers, list_plugins

SOURCE = """
class PaperLogger:
    def __init__(self, name, log_dir=None):
        self.name, self.log_dir = name, log_dir
"""


@pytest.fixture
def paper(registry, fake_dist):
    fake_dist(
        "steppe-paper",
        "0.1.0",
        entry_points={"steppe.loggers": {"PaperLogger": "fake_paper:PaperLogger"}},
        files={"fake_paper.py": SOURCE},
    )


def test_a_logger_is_imported_when_its_name_is_asked_for(paper):
    assert list_loggers() == ["PaperLogger"]
    assert "PaperLogger" in dir(steppe.loggers)
    assert "fake_paper" not in sys.modules
    assert steppe.loggers.PaperLogger is sys.modules["fake_paper"].PaperLogger


@pytest.mark.parametrize("name", ["paper", "PaperLogger", "paperlogger", "PAPER"])
def test_make_logger_takes_the_class_name_or_what_stands_before_logger_in_it(paper, name):
    made = make_logger(name, "run", log_dir="here")

    assert (type(made).__name__, made.name, made.log_dir) == ("PaperLogger", "run", "here")


def test_a_known_logger_says_what_to_install(registry):
    with pytest.raises(errors.LoggerNotFound) as caught:
        make_logger("stone")
    assert str(caught.value) == (
        "No installed package has the logger 'stone'. It is in steppe-quarry: pip install 'steppe[quarry]'."
    )
    assert isinstance(caught.value, ImportError)


def test_an_unknown_logger_is_an_attribute_error_with_a_suggestion(paper):
    with pytest.raises(AttributeError, match=r"has no attribute 'PaprLogger'. Did you mean 'PaperLogger'\?"):
        _ = steppe.loggers.PaprLogger


def test_a_conflict_names_both_packages(paper, fake_dist):
    fake_dist("other-paper", "3.0", entry_points={"steppe.loggers": {"PaperLogger": "other:PaperLogger"}})
    with pytest.raises(errors.PluginConflict, match=r"provide the logger 'PaperLogger': other-paper 3.0 .* and steppe"):
        make_logger("paper")


def test_a_hidden_logger_says_so(paper, monkeypatch):
    monkeypatch.setenv("STEPPE_DISABLE_PLUGINS", "steppe-paper")
    with pytest.raises(errors.PluginBlocked, match=r"Logger 'PaperLogger' is installed .* but hidden by"):
        make_logger("paper")
    assert list_loggers() == []


def test_loggers_are_listed_with_the_plugins(paper):
    assert [(record.kind, record.name) for record in list_plugins()] == [("logger", "PaperLogger")]
