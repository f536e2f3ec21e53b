"""Configures Sphinx, which makes a site of these documents (``make site``).

The documents are Markdown as a forge shows it: a raw anchor is ``<a id="…"></a>``, and a link may
lead to a folder. Two transforms make them targets and pages that Sphinx can check.
"""

from __future__ import annotations

import gettext
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import sphinx.locale
from docutils import nodes
from pygments.lexers.data import JsonLexer
from sphinx.addnodes import pending_xref
from sphinx.search.en import SearchEnglish
from sphinx.transforms import SphinxTransform

if TYPE_CHECKING:
    from sphinx.application import Sphinx

project = "NPU Vigil"
author = "the authors of NPU Vigil"
project_copyright = author
extensions = ["myst_parser"]
include_patterns = ["*.md", "docs/**.md"]
exclude_patterns = [".*", "build", "dist", "tests"]
root_doc = "docs/site/index"
myst_heading_anchors = 6
highlight_language = "text"
html_theme = "furo"
html_title = project
html_search_language = "en-zh"
html_additional_pages = {"index": "start.html"}
templates_path = ["."]
# A browser refuses a script to read other files, and the page of results reports that as an error.
html_show_search_summary = False
# Readers have the sources in the repository; the documents have no Python names to index.
html_copy_source = False
html_use_index = False

_ANCHOR = re.compile(r'<a id="([^"]+)">')
_FOLDERS = {"decisions": "docs/site/decisions", "packages": "docs/site/packages"}
_LOCALES = Path(sphinx.locale.__file__).parent
_CHINESE = ".zh-CN"


class Anchors(SphinxTransform):
    """Makes targets of raw anchors, which links of MyST do not reach."""

    default_priority = 870  # before MyST resolves links within a document

    def apply(self, **_: Any) -> None:
        """Replace each raw anchor, whose id a title would repeat in the contents of a page."""
        for node in list(self.document.findall(nodes.raw)):
            match = _ANCHOR.fullmatch(node.astext())
            if match is not None:
                node.replace_self(nodes.target(ids=[match[1]]))
                self.document.myst_slugs[match[1]] = (node.line, match[1], "")
            elif node.astext() == "</a>":
                node.parent.remove(node)


class Folders(SphinxTransform):
    """Lets a link to a folder of documents lead to the page that lists them."""

    default_priority = 870

    def apply(self, **_: Any) -> None:
        """Change the target of each such link."""
        for link in self.document.findall(pending_xref):
            folder = _FOLDERS.get(Path(link["reftarget"]).name)
            if folder is not None and link["reftarget"].endswith("/"):
                link["refdomain"], link["reftarget"], link["reftargetid"] = "doc", folder, None


class Search(SearchEnglish):
    """Splits Chinese text, which has no spaces, into all pairs of neighbouring characters."""

    lang = "en-zh"
    language_name = "English"  # the class of the stemmer is named by it
    # The same rule for what a reader types.
    js_splitter_code = r"""
        var splitQuery = (query) => query
            .split(/[^\p{Letter}\p{Number}_]+/u)
            .flatMap((word) => word.match(/\p{Script=Han}+|\P{Script=Han}+/gu) || [])
            .flatMap((run) => /\p{Script=Han}{3}/u.test(run)
                ? Array.from(run.slice(1), (last, i) => run[i] + last)
                : [run]);
    """

    def split(self, text: str) -> list[str]:
        """Return words, and for Chinese pairs of characters."""
        words = []
        for run in re.findall(r"[\u4e00-\u9fff]+|[^\W\u4e00-\u9fff]+", text):
            is_long = "\u4e00" <= run[0] <= "\u9fff" and len(run) > 2
            words += [run[i : i + 2] for i in range(len(run) - 1)] if is_long else [run]
        return words


def _set_language(_: Sphinx, page: str, _template: str, context: dict[str, Any], *__: Any) -> None:
    """Give a Chinese page its language and the Chinese texts of the generator."""
    if page.endswith(_CHINESE):
        texts = gettext.translation("sphinx", _LOCALES, ["zh_CN"])
        context |= {
            "language": "zh-CN",
            "_": texts.gettext,
            "gettext": texts.gettext,
            "ngettext": texts.ngettext,
        }


def setup(app: Sphinx) -> None:
    """Register what is above."""
    app.add_lexer("jsonl", JsonLexer)
    app.add_transform(Anchors)
    app.add_transform(Folders)
    app.add_search_language(Search)
    app.connect("html-page-context", _set_language)
