"""Private documents as HTML for notebooks, in the manner of displaCy: each token, its class, and how it was released.

Which words were drawn, masked or kept is not hidden by the guarantee. Whether a drawn word is the author's own is, and no
picture of a document says it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

from textpriv.errors import TextprivError
from textpriv.tokenization.policy import FIRST_FIT, MASK, TOKEN_CLASSES

if TYPE_CHECKING:
    from spacy.tokens import Doc, Token

DRAWN, MASKED, SPAN = "drawn", "masked", "typed span"
# Grounds that let the page's own text colour through, on light and on dark; each kind also has a line of its own, so that
# no colour has to be told from another.
_STYLES = {
    DRAWN: "background:rgba(66,133,244,.18)",
    SPAN: "background:rgba(15,157,88,.22);border-bottom:2px solid rgba(15,157,88,.9)",
    "same": "background:rgba(66,133,244,.18);border-bottom:2px dotted currentColor",
    MASKED: "background:rgba(128,128,128,.45)",
    "kept": "background:rgba(230,124,0,.25);border-bottom:2px solid rgba(230,124,0,.9)",
    "drawn, or": "background:rgba(66,133,244,.18);border-bottom:2px dashed rgba(230,124,0,.9)",
}


class Rendering(str):
    """HTML that a notebook shows by itself: one element, without a script and without a style sheet."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        return self


def render(doc: Doc) -> Rendering:
    """Show a private document with the class of each token and how it was released.

    A Doc of the ``textpriv`` component or tokenizer holds the number of tokens kept of each class and not their places.
    Where a drawn word looks like a kept token, the picture says so.

    Raises
    ------
    TextprivError
        For a Doc that is not private: its raw words are never shown. Also for what is no Doc.
    """
    from spacy import tokens

    if not isinstance(doc, tokens.Doc):
        found = type(doc).__name__
        raise TextprivError(f"render shows one Doc of spaCy, found {found}. Give it one.")
    record = doc._.textpriv if doc.has_extension("textpriv") else None
    if record is None:
        raise TextprivError(
            "this document is not private, and raw words are not shown. Make it with the component or the tokenizer of "
            "textpriv."
        )
    counts, statement = record["counts"], record["statement"]
    guessed = [_class_of(token, counts) for token in doc]
    seen = Counter(guessed)
    kinds = [_kind(name, seen[name] == counts.get(name)) for name in guessed]
    legend = " ".join(
        f'<span style="{_style(kind)};border-radius:.2em;padding:.05em .4em;margin-right:.6em;'
        f'white-space:nowrap">{count:,} {escape(kind)}</span>'
        for kind, count in sorted(Counter(kinds).items(), key=lambda item: (item[0] != DRAWN, item))
    )
    words = [token.text for token in doc]
    spaces = [bool(token.whitespace_) for token in doc]
    epsilon = statement.get("epsilon")
    claim = "no epsilon" if epsilon is None else f"epsilon {epsilon:g} {statement['unit']}"
    proved = "proved" if statement["proved"] else "NOT PROVED"
    visible = "; ".join(statement["not_protected"])
    below = f"{statement['mechanism']}: {claim}, {proved}. Not protected: {visible}."
    return Rendering(
        '<div style="border:1px solid rgba(128,128,128,.4);border-radius:.5em;padding:.7em 1em;margin:.3em 0;'
        'max-width:56em;overflow-wrap:anywhere">'
        f'<p style="margin:0 0 .6em;font-size:.85em">{legend or "no tokens"}</p>'
        f'<div style="line-height:1.9">{token_spans(words, spaces, kinds)}</div>'
        f'<p style="margin:.4em 0 0;font-size:.85em;opacity:.75">{escape(below)}</p></div>'
    )


def _class_of(token: Token, counts: dict[str, int]) -> str:
    """A typed span, the first class of those kept that a token may belong to, or "drawn"."""
    if f"span {token.ent_type_}" in counts:
        return f"{SPAN}: {token.ent_type_}"
    if token.text == MASK and MASKED in counts:
        return MASKED
    for name in FIRST_FIT:
        if name in counts and getattr(token, TOKEN_CLASSES[name].feature):
            return name
    is_word = not (token.is_space or token.is_punct)
    return "unknown" if is_word and "unknown" in counts else DRAWN


def _kind(name: str, is_sure: bool) -> str:
    """How a token of a class was released; not sure, where drawn words look like tokens of it."""
    if name == DRAWN or name.startswith(SPAN):
        return name
    title = "mask" if name == MASKED else TOKEN_CLASSES[name].title
    if not is_sure:
        return f"drawn, or {title} kept"
    return MASKED if name == MASKED else f"kept: {title}"


def token_spans(words: Sequence[str], spaces: Sequence[bool], kinds: Sequence[str]) -> str:
    """Return tokens, and whether a blank follows each, as HTML, each on the ground of its kind.

    Kinds are "drawn", "same" (drawn, and come out as it went in: for the holder of the original only), "masked",
    "kept: CLASS", "drawn, or CLASS kept", and "typed span: KIND", drawn by the mechanism of its kind.
    """
    spans = []
    for word, space, kind in zip(words, spaces, kinds, strict=True):
        if not word.strip():
            spans.append("<br>" * word.count("\n") or " ")
            continue
        title = "drawn, and come out as it went in" if kind == "same" else kind
        spans.append(
            f'<span title="{escape(title)}" style="{_style(kind)};border-radius:.2em;'
            f'padding:.05em .15em">{escape(word)}</span>{" " * space}'
        )
    return "".join(spans)


def _style(kind: str) -> str:
    """The style of the longest beginning of a kind."""
    return next(_STYLES[each] for each in reversed(_STYLES) if kind.startswith(each))
