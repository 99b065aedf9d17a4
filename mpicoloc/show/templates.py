"""Templates of pages: HTML files in this folder, which can include each other."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

import jinja2


@cache
def template(name: str) -> jinja2.Template:
    """The template in a file. Texts are escaped, and a variable that a page does not set is an error."""
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(
            lambda file: files("mpicoloc.show").joinpath(file).read_text(encoding="utf-8")
        ),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(name)
