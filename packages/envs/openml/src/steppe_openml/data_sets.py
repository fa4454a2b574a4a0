"""Load a data set of OpenML with scikit-learn, and encode it as numbers."""

from __future__ import annotations

from typing import Any
from urllib.error import URLError

import numpy as np

from steppe.errors import StateError

from .names import SETS

__all__ = ["load"]

_Array = np.ndarray[Any, Any]


def load(name: str, data_home: str | None = None) -> tuple[_Array, _Array]:
    """Return the features ``[n, k]`` float64 and the labels ``[n]`` int64 of a data set.

    scikit-learn downloads the data set the first time, and keeps it in its cache. Categories become their rank in
    sorted order, or one column each in the sets called ``..._onehot``. Numbers are standardized.

    Args:
        name: a name of :data:`~steppe_openml.names.SETS`.
        data_home: folder of scikit-learn's cache. ``None``: its default folder.

    Raises:
        StateError: the data set is not in the cache, and cannot be downloaded.
    """
    from sklearn.datasets import fetch_openml, get_data_home
    from sklearn.preprocessing import LabelEncoder, OneHotEncoder, StandardScaler

    title, version = SETS[name]
    try:
        features, labels = fetch_openml(
            title, version=version, data_home=data_home, as_frame=True, return_X_y=True, parser="auto"
        )
    except (URLError, OSError) as error:
        raise StateError(
            f"The data set {name!r} ({title!r}, version {version}, of OpenML) is not in the cache of scikit-learn, "
            f"{get_data_home(data_home)}, and cannot be downloaded ({error}). Run sklearn.datasets.fetch_openml("
            f"{title!r}, version={version}) on a machine with a network, and copy its folder openml to that cache."
        ) from error
    if title == "adult":
        # The occupation is predicted, from rows without gaps.
        complete = features.dropna()
        labels, features = complete["occupation"], complete.drop(columns=["occupation"])
    encoded = features.copy()
    categories = list(features.columns) if title == "mushroom" else _categories(features)
    for column in categories:
        encoded[column] = LabelEncoder().fit_transform(features[column].to_numpy(object))
    numbers = [column for column in features.columns if column not in categories]
    if name.endswith("_onehot"):
        parts = [StandardScaler().fit_transform(encoded[numbers])] if numbers else []
        values = np.concatenate([*parts, OneHotEncoder(sparse_output=False).fit_transform(encoded[categories])], 1)
    else:
        values = StandardScaler().fit_transform(encoded)
    return np.asarray(values, np.float64), np.asarray(LabelEncoder().fit_transform(labels.to_numpy(object)), np.int64)


def _categories(frame: Any) -> list[Any]:
    return [column for column in frame.columns if str(frame[column].dtype) in ("category", "object", "str", "string")]
