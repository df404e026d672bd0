"""A browser without a window: what a page becomes in it, and one that fingers touch."""

import base64
import json
import os
import shutil
import subprocess
import tempfile
import time

import pytest

from tests.processes import TIMEOUT

FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --hide-scrollbars --enable-logging=stderr --window-size=1400,2600"
).split()
CHROMIUM = shutil.which("chromium")
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")


def chromium(tmp_path, file, *options):
    """Output and console messages of a headless run; no profile of an earlier one."""
    profile = tempfile.mkdtemp(dir=tmp_path)
    command = [CHROMIUM, *FLAGS, f"--user-data-dir={profile}", "--virtual-time-budget=20000", *options, file.as_uri()]
    result = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT, check=True, cwd=tmp_path)
    return result.stdout, [line for line in result.stderr.splitlines() if "CONSOLE" in line]


class Browser:
    """One that is spoken to in the DevTools protocol, and gets events as from hands: for `with`.

    Args:
        folder: for its profile.
        width, height: of the screen, in pixels of CSS.
        ratio: of the screen's pixels to those.
        touch: whether it is a telephone.
        flags: of the command line.
    """

    def __init__(self, folder, width, height, ratio=1, touch=False, flags=FLAGS):
        self.folder, self.screen, self.touches, self.count = folder, (width, height, ratio), touch, 0
        self.flags = flags

    def __enter__(self):
        (theirs, to), (back, ours) = os.pipe(), os.pipe()

        def hand_over():  # chromium reads from file 3 and writes to file 4
            inwards, outwards = os.dup(theirs), os.dup(ours)
            os.dup2(inwards, 3)
            os.dup2(outwards, 4)

        options = [f"--user-data-dir={tempfile.mkdtemp(dir=self.folder)}", "--remote-debugging-pipe", "about:blank"]
        self.process = subprocess.Popen(
            [CHROMIUM, *self.flags, *options], preexec_fn=hand_over, close_fds=False, stderr=subprocess.DEVNULL
        )
        os.close(theirs)
        os.close(ours)
        self.to, self.back, self.session = os.fdopen(to, "wb", buffering=0), os.fdopen(back, "rb"), {}
        (page,) = (one for one in self("Target.getTargets")["targetInfos"] if one["type"] == "page")
        self.session = self("Target.attachToTarget", targetId=page["targetId"], flatten=True)  # {"sessionId": ...}
        width, height, ratio = self.screen
        self(
            "Emulation.setDeviceMetricsOverride",
            **{"width": width, "height": height, "deviceScaleFactor": ratio, "mobile": self.touches},
        )
        self("Emulation.setTouchEmulationEnabled", enabled=self.touches, maxTouchPoints=5)
        return self

    def __exit__(self, *_):
        self.to.close()  # which ends it
        self.back.close()
        self.process.wait(timeout=TIMEOUT)

    def __call__(self, method, **parameters):
        return self.answer(self.send(method, **parameters))

    def send(self, method, **parameters):
        """The number of a message, for its answer."""
        self.count += 1
        message = {"id": self.count, "method": method, "params": parameters, **self.session}
        self.to.write(json.dumps(message).encode() + b"\0")
        return self.count

    def answer(self, number):
        """What the browser answers; what it says unasked is passed over."""
        while True:
            answer = b""
            while not answer.endswith(b"\0"):
                byte = self.back.read(1)
                assert byte, "the browser has ended"
                answer += byte
            said = json.loads(answer[:-1])
            if said.get("id") == number:
                assert "error" not in said, said
                return said["result"]

    def evaluate(self, expression):
        """The value of JavaScript, awaited."""
        said = self("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in said, said
        return said["result"].get("value")

    def open(self, file, ready="document.readyState === 'complete'", fragment=""):
        """Goes to a file, and waits until an expression of JavaScript is true there."""
        self.evaluate("window.left = true")
        self("Page.navigate", url=file.as_uri() + (f"?{fragment}#{fragment}" if fragment else ""))  # loads it again
        for _ in range(600):
            if self.evaluate(f"!window.left && ({ready})"):
                return
            time.sleep(0.05)
        raise TimeoutError(f"{file} is not ready")

    def drag(self, *paths, steps=10):
        """One finger for each path, `((x, y), (x, y))` in pixels of CSS, all at once."""

        def touch(kind, share=None):
            at = [[a + (b - a) * share for a, b in zip(*path)] for path in paths] if share is not None else []
            points = [{"x": x, "y": y, "id": finger} for finger, (x, y) in enumerate(at)]
            self("Input.dispatchTouchEvent", type=kind, touchPoints=points)

        touch("touchStart", 0)
        for k in range(steps):
            touch("touchMove", (k + 1) / steps)
        touch("touchEnd")

    def tap(self, x, y, times=1):
        """As fast as a hand on a machine of any speed: a page that waits between down and up sees a long press."""
        down = {"type": "touchStart", "touchPoints": [{"x": x, "y": y, "id": 0}]}
        up = {"type": "touchEnd", "touchPoints": []}
        for number in [self.send("Input.dispatchTouchEvent", **touch) for touch in (down, up) * times]:
            self.answer(number)

    def picture(self, path, **clip):
        """Writes what is seen, or the part of the page that `clip` says, as PNG."""
        clip = {"clip": {"scale": 1, **clip}, "captureBeyondViewport": True} if clip else {}
        path.write_bytes(base64.b64decode(self("Page.captureScreenshot", format="png", **clip)["data"]))
