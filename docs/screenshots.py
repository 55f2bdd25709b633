"""Photograph the report and the playground: ``docs/guide/report.webp`` and ``docs/guide/playground.webp``.

Run it with ``python docs/screenshots.py`` in a clone. It needs Chromium and the extra ``playground``.
"""

from __future__ import annotations

import base64
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import uvicorn

import textpriv
from textpriv.web.playground import Playground
from textpriv.web.server import application, bind

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))
from browser import Browser

FOLDER = Path(__file__).with_name("guide")
TEXT = "I was charged twice, and the invoice is wrong. Priyanka promised a refund."


def saved(browser: Browser, name: str, height: int) -> None:
    """Save the top of the page that is open."""
    clip = {"x": 0, "y": 0, "width": 900, "height": height, "scale": 1}
    settings = {"format": "webp", "quality": 60, "clip": clip}
    shot = browser.command("Page.captureScreenshot", **settings)
    (FOLDER / name).write_bytes(base64.b64decode(shot["data"]))


def main() -> None:
    """Make both pictures."""
    with tempfile.TemporaryDirectory() as folder:
        browser = Browser(Path(folder) / "profile")
        browser.command("Emulation.setScrollbarsHidden", hidden=True)
        page = Path(folder) / "report.html"
        start = "from textpriv.cli.app import main; main()"
        making = [sys.executable, "-c", start, "report", "--recovery", "0.1", "--output", str(page)]
        subprocess.run(making, check=True)  # noqa: S603 - our own command
        saved(browser.open(page.as_uri(), 900), "report.webp", 700)
        listening = bind(0)
        index = textpriv.Index.builtin("en")
        begins = textpriv.epsilon_for(index, recovery=0.1)
        served = application(Playground(index, begins))
        server = uvicorn.Server(uvicorn.Config(served, lifespan="off", log_level="critical"))
        serving = {"target": server.run, "kwargs": {"sockets": [listening]}, "daemon": True}
        threading.Thread(**serving).start()  # type: ignore[arg-type]
        browser.open(f"http://127.0.0.1:{listening.getsockname()[1]}/", 900)
        browser.type("text", TEXT)
        browser.until("document.querySelectorAll('#output .token').length >= 13")
        saved(browser, "playground.webp", 700)
        browser.close()


if __name__ == "__main__":
    main()
