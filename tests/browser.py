"""Headless Chromium, driven by its own debugging protocol over a pipe: nothing else need be installed.

Tests of pages and the pictures of the documentation look through it; what a page must be is said where it is looked at.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import itertools
import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path

__all__ = ["PROGRAM", "Browser"]

PROGRAM = (
    shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
)
PATIENCE = 60.0


class Browser:
    """One headless page, and everything it has said since it was last opened."""

    def __init__(self, profile) -> None:
        there, ours = os.pipe()
        mine, theirs = os.pipe()
        options = (
            "--headless --no-sandbox --disable-gpu --no-first-run --disable-background-networking --disable-extensions "
            "--disable-component-update --disable-dev-shm-usage --disable-sync --remote-debugging-pipe "
            "--no-proxy-server --mute-audio"
        ).split()
        # Chromium reads its commands from descriptor 3 and answers on 4.
        high = [fcntl.fcntl(each, fcntl.F_DUPFD, 10) for each in (there, theirs)]
        self.process = subprocess.Popen(
            [PROGRAM, *options, f"--user-data-dir={profile}", "about:blank"],
            pass_fds=(3, 4),
            preexec_fn=lambda: [os.dup2(each, place) for place, each in enumerate(high, start=3)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for each in high:
            os.close(each)
        os.close(there)
        os.close(theirs)
        self.reading, self.writing = mine, ours
        self.held = b""
        self.numbers = itertools.count(1)
        self.events: list[dict] = []
        self.session = None
        target = self.command("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.command("Target.attachToTarget", targetId=target, flatten=True)[
            "sessionId"
        ]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.command(f"{domain}.enable")

    def command(self, method, **parameters):
        number = next(self.numbers)
        message = {"id": number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.writing, json.dumps(message).encode() + b"\0")
        answer = self.wait(lambda each: each.get("id") == number)
        assert "error" not in answer, answer
        return answer["result"]

    def wait(self, wanted, patience=PATIENCE):
        end = time.monotonic() + patience
        while True:
            while b"\0" in self.held:
                line, self.held = self.held.split(b"\0", 1)
                message = json.loads(line)
                if "method" in message:
                    self.events.append(message)
                if wanted(message):
                    return message
            left = end - time.monotonic()
            assert left > 0, "the browser does not answer"
            if select.select([self.reading], [], [], left)[0]:
                piece = os.read(self.reading, 1 << 16)
                assert piece, "the browser has gone"
                self.held += piece

    def resize(self, width):
        self.command(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=900,
            deviceScaleFactor=1,
            mobile=False,
        )

    def open(self, address, width=1280, scheme="light"):
        self.resize(width)
        self.command(
            "Emulation.setEmulatedMedia",
            features=[{"name": "prefers-color-scheme", "value": scheme}],
        )
        for url in ("about:blank", address):
            self.events.clear()
            self.command("Page.navigate", url=url)
            self.until(f"document.readyState === 'complete' && location.href === {url!r}")
        return self

    def evaluate(self, expression):
        answer = self.command(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def until(self, expression, patience=PATIENCE):
        end = time.monotonic() + patience
        while not (found := self.evaluate(expression)):
            assert time.monotonic() < end, f"never came true: {expression}"
            time.sleep(0.05)
        return found

    def type(self, element, text):
        self.evaluate(
            f"document.getElementById({element!r}).focus(); document.getElementById({element!r}).select()"
        )
        self.command("Input.insertText", text=text)

    def press(self, key, code):
        for kind in ("keyDown", "keyUp"):
            self.command(
                "Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code
            )

    def complaints(self):
        """Errors, warnings and exceptions that the page has raised."""
        self.evaluate("1")  # whatever came before this has been told
        bad = ("Runtime.exceptionThrown", "Log.entryAdded", "Runtime.consoleAPICalled")
        return [each for each in self.events if each["method"] in bad]

    def requests(self):
        sent = [
            e["params"]["request"]["url"]
            for e in self.events
            if e["method"] == "Network.requestWillBeSent"
        ]
        return [url for url in sent if not url.startswith("data:")]

    def picture(self, path, top=0, height=None, scale=1):
        """Write the page, or a height of it from a place on, as a PNG file."""
        size = self.command("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": top, "width": size["width"], "height": height or size["height"]}
        answer = self.command(
            "Page.captureScreenshot", clip={**clip, "scale": scale}, captureBeyondViewport=True
        )
        Path(path).write_bytes(base64.b64decode(answer["data"]))

    def close(self):
        with contextlib.suppress(OSError, AssertionError):
            self.session = None
            self.command("Browser.close")
        for end in (self.reading, self.writing):
            os.close(end)
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
