"""Names and options that ``steppe new-plugin`` refuses."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["ware house"], "'ware house' cannot be the name of a package: letters, digits"),
        (["-x"], "the following arguments are required: NAME"),
        (["2048"], "'2048' gives the module '2048_steppe', which cannot be imported: begin with a letter"),
        (["steppe"], "'steppe' is the core"),
        (["gym"], "'gym:' is the namespace of steppe-gym"),
        (["a", "--names", "a:small"], "--names must not contain the namespace: write 'small', not 'a:small'"),
        (["a", "--names", "small,,large"], "--names 'small,,large' has an empty name"),
        (["a", "--names", "x,x"], "--names 'x,x' names x twice"),
        (["a", "--names", 'x"y'], "--names 'x\"y' has a space, a quote or a backslash"),
        (["a", "--transform", "One-Hot"], "--transform 'One-Hot' is not the name of a public class"),
        (["a", "--transform", "class"], "--transform 'class' is not the name of a public class"),
        (["a", "--transform", "StepCounter"], "'StepCounter' is a transform of the core"),
        (["a", "--transform", "Resize"], "'Resize' is a transform of steppe-vision"),
        (["a", "--library", "a b"], "--library 'a b' is not a requirement"),
        (["a", "--library", "acme"], "--library 'acme' has no lower bound"),
        (["a", "--library", "acme>=1"], "--library 'acme>=1' has no upper bound"),
        (["a", "--library", "acme @ https://acme.org/a.whl"], "has an address or a marker"),
        (["a", "--library", "steppe>=0.1,<1"], "--library is the package that the plugin wraps"),
        (
            ["a", "--make", "acme.Env"],
            "--make 'acme.Env' is not a class or function of a module: write --make module:Class",
        ),
        (["a", "--kind", "transforms", "--names", "x"], "--names is for environments"),
        (["a", "--kind", "agents"], "argument --kind: invalid choice: 'agents'"),
    ],
)
def test_wrong_names_are_refused_in_one_line(new_plugin, tmp_path, arguments, text):
    status, out, err = new_plugin(*arguments)

    assert (status, out, err.count("\n")) == (2, "", 1)
    assert text in err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--make", "warehouse:Warehouse", "--reset", "my reset"), "--reset 'my reset' is not the name of a method"),
        (("--step", "tick"), "add --library or --make"),
        (("--kind", "transforms", "--step", "tick"), "--step is for environments"),
    ],
)
def test_wrong_names_of_methods_are_refused(new_plugin, arguments, text):
    status, _, err = new_plugin("warehouse", *arguments)

    assert status == 2
    assert text in err
