"""The pages of this package: templates, their style and scripts, and how they are filled.

What a page says is gathered in ``textpriv.web.report`` and ``textpriv.web.playground``. Here stands what keeps every
page safe: whatever is filled in is escaped, and a policy lets it run its own script and load nothing.
"""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib.resources import files
from typing import Any

from textpriv import __version__
from textpriv.bounds import at_most

__all__ = ["asset", "content_policy", "fill"]


def asset(name: str) -> str:
    """Return a style sheet or script of this folder."""
    return files(__package__).joinpath("templates").joinpath(name).read_text(encoding="utf-8")


def content_policy(script: str, connect: str = "'none'") -> str:
    """Return a Content-Security-Policy under which a page runs one script, known by its hash, and loads nothing.

    Parameters
    ----------
    script : str
        The source of the one inline script.
    connect : str
        What the script may talk to.
    """
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; img-src data:; "
        f"connect-src {connect}; base-uri 'none'; form-action 'none'"
    )


def fill(template: str, **content: Any) -> str:
    """Fill a template of this folder; every text is escaped, and a name that is missing is an error."""
    given = {"version": __version__, "style": asset("style.css"), "at_most": at_most, **content}
    return _environment().get_template(template).render(**given)


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
