"""What pages are made of: templates that escape every text, and a policy under which a page loads nothing."""

from __future__ import annotations

import base64
import hashlib
from datetime import datetime, timezone
from functools import cache
from importlib.resources import files
from typing import Any

from textpriv import __version__
from textpriv.statement import at_least, at_most

SAMPLE = (
    "John Miller, 34, was admitted with chest pain on 12 March. He was given insulin and went home on Friday. "
    "His sister Maria lives in Boston."
)


def asset(name: str) -> str:
    """Return a style sheet or script of this folder."""
    return files(__package__).joinpath("templates").joinpath(name).read_text(encoding="utf-8")


def content_policy(script: str, connect: str = "'none'") -> str:
    """Return a Content-Security-Policy: a page runs one script, known by its hash, asks one source, and loads nothing."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; img-src data:; "
        f"connect-src {connect}; base-uri 'none'; form-action 'none'"
    )


def fill(template: str, **content: Any) -> str:
    """Fill a template; every text is escaped, and a missing name is an error."""
    made = datetime.now(timezone.utc).strftime("%Y-%m-%d")
    given = {"version": __version__, "made": made, "style": asset("style.css"), **content}
    rounded = {"at_most": at_most, "at_least": at_least}
    return _environment().get_template(template).render(**given, **rounded)


@cache
def _environment() -> Any:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    return Environment(
        loader=PackageLoader("textpriv", "web/templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
