"""Settings of Sphinx. ``nox -s site`` copies them beside the assembled pages (tools/site), and builds the site."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from steppe import __version__
from steppe_site import inventories, mocked, references  # written beside this file by tools/site/assemble

project = "steppe"
author = "the steppe authors"
copyright = "2026, the steppe authors"
release = version = __version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.intersphinx",
    "sphinx_copybutton",
    "sphinx_design",
]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
exclude_patterns: list[str] = ["steppe_site"]

# -- Markdown

myst_enable_extensions = ["colon_fence", "attrs_block", "deflist"]
myst_heading_anchors = 4

# -- API

autodoc_mock_imports = mocked.LIBRARIES
mocked.accept_missing_libraries()
autodoc_typehints_format = "short"
autodoc_member_order = "bysource"
autodoc_class_signature = "mixed"
python_use_unqualified_type_names = True
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_rtype = False
napoleon_use_ivar = True
add_module_names = False
python_maximum_signature_line_length = 80  # a longer signature has one argument in each line

# Nothing is downloaded: the inventories of other projects are written from docs/inventories.toml.
intersphinx_mapping = inventories.mapping(Path(__file__).resolve().parent)
intersphinx_disabled_reftypes: list[str] = []

# -- HTML

html_theme = "furo"
html_title = "steppe"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#1d6f42", "color-brand-content": "#1d6f42"},
    "dark_css_variables": {"color-brand-primary": "#7bd3a0", "color-brand-content": "#7bd3a0"},
}
pygments_style = "a11y-high-contrast-light"
pygments_dark_style = "a11y-high-contrast-dark"
copybutton_exclude = ".linenos, .gp, .go"


def setup(app: Any) -> None:
    """Connect the rules of this site for docstrings to autodoc."""
    app.connect("autodoc-process-docstring", references.split_shared_entries, priority=400)  # before napoleon
    app.connect("autodoc-process-signature", references.signature_of_init)
    app.connect("missing-reference", references.resolve)
    app.connect("autodoc-skip-member", references.skip_foreign)
