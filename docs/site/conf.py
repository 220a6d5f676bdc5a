"""Sphinx's settings for the site; make.py passes the folders."""

import gpuopt

project = "gpuopt"
author = "the authors of gpuopt"
copyright = author
version = release = gpuopt.__version__

extensions = ["myst_nb", "numpydoc"]
source_suffix = {".rst": "restructuredtext", ".md": "myst-nb", ".ipynb": "myst-nb"}
root_doc = "index"
smartquotes = False  # they would change quotation marks of code in docstrings

nb_execution_mode = "off"  # notebooks are shown with their committed outputs
nb_ipywidgets_js = {}  # no notebook has widgets, and no page loads scripts from elsewhere
myst_heading_anchors = 4
myst_links_external_new_tab = False

html_theme = "pydata_sphinx_theme"
html_title = f"gpuopt {release}"
html_theme_options = {
    "navbar_align": "left",
    "header_links_before_dropdown": 4,
    "show_toc_level": 2,
    "navigation_depth": 2,
    "show_prev_next": False,
    "secondary_sidebar_items": ["page-toc"],
}
html_sidebars = {"index": []}
html_copy_source = False
html_show_sourcelink = False
pygments_style = "default"
