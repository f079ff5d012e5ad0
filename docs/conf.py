"""The site: `make docs` builds it, executes every example and takes every warning for an error."""

from __future__ import annotations

import hashlib
import re
import shutil
import sys
from pathlib import Path
from typing import Any

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx

import diffurn

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS))  # pages share `_figures`

project, author, copyright = "diffurn", "diffurn contributors", "diffurn contributors"
version = release = diffurn.__version__

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]
extensions += ["sphinx_copybutton"]
exclude_patterns = ["_*", "**.ipynb_checkpoints"]
default_role = "py:obj"  # single backticks in docstrings name things of the package

html_theme = "furo"
html_title = f"diffurn {version}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_js_files = ["filter.js"]
html_theme_options = {"navigation_with_keys": True}
html_math_renderer = "mathml"
copybutton_selector = "div:not(.output) > div.highlight > pre"  # code, and not what it prints
copybutton_prompt_text = r"\$ |>>> "
copybutton_prompt_is_regexp = True

myst_enable_extensions = ["amsmath", "attrs_inline", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints = "none"  # the docstrings say what an argument means, in words and shapes
napoleon_use_rtype = False
napoleon_use_ivar = True
toc_object_entries_show_parents = "hide"

nb_execution_raise_on_error = True
nb_execution_timeout = 300
nb_execution_show_tb = True
nb_merge_streams = True
nb_render_markdown_format = "myst"  # tables of results are Markdown


def _fingerprint() -> str:
    """Changes with anything that an example's output may depend on, besides the example itself."""
    digest = hashlib.sha256()
    sources = [
        *DOCS.glob("_*.py"),
        *DOCS.glob("../src/diffurn/**/*.*"),
        *DOCS.glob("../examples/*.py"),
        *DOCS.glob("../results/*/*.json*"),
    ]
    for path in sorted(path for path in sources if "__pycache__" not in path.parts):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


nb_execution_mode = "cache"
_CACHES = DOCS.parent / "build" / "docs" / "executed"
nb_execution_cache_path = str(_CACHES / _fingerprint())
for stale in set(_CACHES.glob("*")) - {Path(nb_execution_cache_path)}:
    shutil.rmtree(stale)


# Formulas become MathML, which browsers set by themselves: no script, and nothing to fetch. Signs
# that are written as they are become commands, so that they are spaced as operators; names of
# functions are spaced as TeX does.
_SIGNS = {
    "≤": r"\le ",
    "≥": r"\ge ",
    "≠": r"\ne ",
    "≈": r"\approx ",
    "∼": r"\sim ",
    "∝": r"\propto ",
    "∈": r"\in ",
    "·": r"\cdot ",
}
_SIGNS |= {"‖": r"\,\Vert\,", "…": r"\ldots "}
_FUNCTION = re.compile(
    r'<mi>(?P<name>\\?arg|exp|log|sin)</mi>(?P<open>(?:<mo stretchy="false">&#x00028;)?)'
)
_LONG = 25  # characters of a formula that may be wider than a telephone


def _mathml(formula: str, display: str) -> str:
    def spaced(match: re.Match[str]) -> str:
        after = "0" if match["open"] else "0.17em"
        return (
            '<mo lspace="0.17em" '
            f'rspace="{after}">{match["name"].lstrip(chr(92))}</mo>{match["open"]}'
        )

    converted = convert(formula.translate(str.maketrans(_SIGNS)), display=display)
    if "<mi>&</mi>" in converted:  # what the converter does not know, it copies
        raise ValueError(
            f"this formula has an environment other than split, align and array: {formula}"
        )
    return _FUNCTION.sub(spaced, converted)


def _visit_math(self: Any, node: nodes.math) -> None:
    formula = _mathml(node.astext(), "inline")
    self.body.append(
        f'<span class="long-math">{formula}</span>' if len(node.astext()) > _LONG else formula
    )
    raise nodes.SkipNode


def _visit_math_block(self: Any, node: nodes.math_block) -> None:
    self.body.append(self.starttag(node, "div", CLASS="math-block"))
    self.body.append(_mathml(node.astext(), "block") + "</div>\n")
    raise nodes.SkipNode


# Docstrings are read in terminals as well, so they say ω_j; here that becomes a subscript, but for
# code and formulas.
_LITERAL = re.compile(r"(``.+?``|:\w+:`.+?`|`.+?`)")
_SUBSCRIPT = re.compile(r"(?<![\w.])([A-Za-zΣω])_([a-z]|group)(?!\w)")


def _set_subscripts(
    app: Sphinx, what: str, name: str, thing: object, options: object, lines: list[str]
) -> None:
    for place, line in enumerate(lines):
        pieces = _LITERAL.split(line)
        if not re.match(r"\s*(>>>|\.\.)", line) and "\\" not in "".join(pieces[::2]):
            lines[place] = "".join(
                piece if odd % 2 else _SUBSCRIPT.sub(r"\1\\ :sub:`\2`", piece)
                for odd, piece in enumerate(pieces)
            )


def setup(app: Sphinx) -> None:
    app.connect("autodoc-process-docstring", _set_subscripts, priority=900)  # after napoleon
    app.add_html_math_renderer("mathml", (_visit_math, None), (_visit_math_block, None))
