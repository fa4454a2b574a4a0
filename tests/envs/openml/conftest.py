"""A cache of scikit-learn with small data sets under the names of OpenML's, so that no test needs a network."""

from __future__ import annotations

import gzip
import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

_HOST = "https://www.openml.org/"


def _table(name: str, rows: int) -> tuple[list[tuple[str, list[str] | None]], list[list[str]], str]:
    """Columns (name, and the values of a category), rows, and the target of a data set."""
    generator = np.random.default_rng(len(name))
    if name == "adult":
        columns = [
            ("age", None),
            ("workclass", ["Private", "Federal-gov", "State-gov"]),
            ("occupation", ["Sales", "Craft-repair", "Adm-clerical"]),
            ("class", ["<=50K", ">50K"]),
        ]
        gaps = "workclass"
    elif name == "mushroom":
        columns = [("odor", ["p", "a", "l"]), ("stalk-root", ["e", "c", "b"]), ("class", ["p", "e"])]
        gaps = "stalk-root"
    else:
        columns = [("fLength", None), ("fWidth", None), ("class", ["h", "g"])]
        gaps = ""
    lines = []
    for row in range(rows):
        line = []
        for column, values in columns:
            if column == gaps and row % 7 == 3:
                line.append("?")
            elif values is None:
                line.append(str(int(generator.integers(0, 90))))
            else:
                line.append(values[row % len(values)])
        lines.append(line)
    return columns, lines, "class"


def _write(home: Path, url: str, content: bytes) -> None:
    for path in (url.removeprefix(_HOST), url.removeprefix("https://")):
        file = home / "openml" / "openml.org" / f"{path}.gz"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(gzip.compress(content))


def seed_cache(home: Path, name: str, version: int, number: int, rows: int = 30) -> list[list[str]]:
    """Write the files with which scikit-learn loads a data set without a network, and return its rows."""
    columns, lines, target = _table(name, rows)
    head = [f"@relation {name}"]
    for column, values in columns:
        head.append(f"@attribute {column} " + ("numeric" if values is None else "{" + ",".join(values) + "}"))
    arff = "\n".join([*head, "@data", *(",".join(line) for line in lines), ""]).encode()
    file_url = f"{_HOST}data/v1/download/{number}/{name}.arff"
    api = f"{_HOST}api/v1/json/data/"
    listed = {"did": number, "name": name, "version": version, "status": "active", "format": "ARFF"}
    description = {
        **{"id": str(number), "name": name, "version": str(version), "description": "made by a test"},
        **{"format": "ARFF", "url": file_url, "file_id": str(number), "default_target_attribute": target},
        **{"status": "active", "md5_checksum": hashlib.md5(arff).hexdigest(), "licence": "Public"},
    }
    features = [
        {
            "index": str(index),
            "name": column,
            "data_type": "numeric" if values is None else "nominal",
            **({} if values is None else {"nominal_value": values}),
            "is_target": str(column == target).lower(),
            "is_ignore": "false",
            "is_row_identifier": "false",
            "number_of_missing_values": str(sum(line[index] == "?" for line in lines)),
        }
        for index, (column, values) in enumerate(columns)
    ]
    qualities = [{"name": "NumberOfInstances", "value": str(float(rows))}]
    answers = {
        f"{api}list/data_name/{name.lower()}/limit/2/data_version/{version}": {"data": {"dataset": [listed]}},
        f"{api}{number}": {"data_set_description": description},
        f"{api}features/{number}": {"data_features": {"feature": features}},
        f"{api}qualities/{number}": {"data_qualities": {"quality": qualities}},
    }
    for url, answer in answers.items():
        _write(home, url, json.dumps(answer).encode())
    _write(home, file_url, arff)
    # scikit-learn 1.4 downloads the file by its number.
    _write(home, f"{_HOST}data/v1/download/{number}", arff)
    return lines


@pytest.fixture(scope="session")
def data_home(tmp_path_factory) -> str:
    """The folder of the cache."""
    home = tmp_path_factory.mktemp("scikit_learn_data")
    for number, (name, version) in enumerate([("adult", 1), ("mushroom", 1), ("MagicTelescope", 1)], 101):
        seed_cache(home, name, version, number)
    return str(home)


@pytest.fixture(autouse=True)
def _cache(data_home, monkeypatch) -> None:
    """Use the cache in this process and in workers."""
    monkeypatch.setenv("SCIKIT_LEARN_DATA", data_home)
