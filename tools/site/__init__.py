"""The documentation site: its source is assembled from docs/, the packages and their docstrings, then built by Sphinx.

``assemble`` writes the source of the site to a new folder. ``links`` moves links between files of the repository to the
pages of the site. ``api``, ``libraries``, ``commands`` and ``error_page`` write generated pages. ``check`` reads the
built site, and reports links, anchors and pictures that lead nowhere.
"""
