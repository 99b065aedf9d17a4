"""Sphinx settings. Build: python -m sphinx -W -b html docs docs/_build/html."""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE / "_ext")]

import mpicoloc  # noqa: E402
from mpicoloc.cli import main as cli  # noqa: E402

project = "mpicoloc"
copyright = "the mpicoloc developers"
version = release = mpicoloc.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "generated"]
source_suffix = {".md": "markdown"}
# reference/json.md includes the generated page, so that links to it also work in a checkout.
exclude_patterns = ["_build", "_ext", "reference/generated/json.md"]
myst_enable_extensions = ["colon_fence", "deflist", "fieldlist"]
myst_heading_anchors = 3

# The contract extension is compiled; the reference builds without it.
autodoc_mock_imports = ["mpi4py"]
autodoc_typehints = "none"
autodoc_member_order = "bysource"
napoleon_numpy_docstring = True
napoleon_google_docstring = False
napoleon_use_rtype = False

# python -m sphinx -b man docs docs/_build/man
man_pages = [
    (f"reference/generated/cli/{verb}", f"mpicoloc-{verb}", words, "the mpicoloc developers", 1)
    for verb, words in cli.VERBS.items()
]

html_theme = "furo"
html_title = f"mpicoloc {release}"
html_static_path = []
