"""Take the README's pictures of the report and of the playground, with the built-in index.

    python tools/pictures.py

It needs Chromium, and writes ``docs/report.png`` and ``docs/playground.png``. The text in the playground is made up.
"""

from __future__ import annotations

import sys
import tempfile
import threading
from pathlib import Path

import textpriv
from textpriv.web.playground import Playground
from textpriv.web.report import report_page
from textpriv.web.server import application, bind

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))
from browser import PROGRAM, Browser  # noqa: E402

WIDTH, HEIGHT = 1000, 690
WORD = "pain"
TEXT = "The patient was admitted with chest pain and asthma. She was given insulin and went home on Friday."
# Where the report shows what a word becomes.
PLACE = (
    "document.getElementById('word').closest('section').getBoundingClientRect().top + scrollY - 10"
)
SET_EPSILON = """(() => {
  const field = document.getElementById("epsilon");
  field.value = %g;
  field.dispatchEvent(new Event("input"));
})()"""


def main() -> None:
    """Take both."""
    if PROGRAM is None:
        raise SystemExit("Chromium is needed, and was not found.")
    index = textpriv.Index.builtin("en")
    half = textpriv.epsilon_for(index, keep=0.5, mechanism="tem")
    mechanism = textpriv.TEM(index, epsilon=half)
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "report.html"
        page.write_text(report_page(textpriv.Privatizer(mechanism), more=[WORD]), encoding="utf-8")
        browser = Browser(Path(folder) / "profile")
        browser.open(page.as_uri(), WIDTH)
        browser.type("word", WORD)
        browser.picture(ROOT / "docs" / "report.png", browser.evaluate(PLACE), HEIGHT)
        browser.open(_serve(index), WIDTH)
        browser.evaluate(SET_EPSILON % half)
        browser.type("text", TEXT)
        browser.until("document.getElementById('draws').textContent !== ''")
        browser.picture(ROOT / "docs" / "playground.png", 0, HEIGHT)
        browser.close()


def _serve(index: textpriv.Index) -> str:
    """Run a playground as long as this process, and return its address."""
    import uvicorn

    listening = bind("127.0.0.1", 0)
    app = application(Playground(index))
    config = uvicorn.Config(app, lifespan="off", log_level="critical", ws="none")
    server = uvicorn.Server(config)
    threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True).start()
    return f"http://127.0.0.1:{listening.getsockname()[1]}/"


if __name__ == "__main__":
    main()
