"""Chromium without a window, driven over its DevTools protocol."""

import base64
import contextlib
import fcntl
import json
import os
import select
import signal
import subprocess
import time
import zlib
from pathlib import Path

import ckptfs

SECONDS = 60  # Time limit of a command.


def pipe():
    """The ends of a pipe, with numbers that are not those on which Chromium reads and writes."""
    ends = os.pipe()
    high = tuple(fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in ends)
    for end in ends:
        os.close(end)
    return high


class Browser:
    """A page in a browser of its own, which ends with the context."""

    def __init__(self, profile, width=1200, height=800):
        self.profile = os.fsencode(profile)
        from_us, self.writer = pipe()
        self.reader, to_us = pipe()
        command = ["chromium", "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
                   "--no-first-run", "--disable-dev-shm-usage", "--remote-debugging-pipe",
                   f"--user-data-dir={profile}", f"--window-size={width},{height}", "about:blank"]
        self.process = subprocess.Popen(
            ["bash", "-c", f'exec "$@" 3<&{from_us} 4>&{to_us}', "bash", *command],
            pass_fds=(from_us, to_us), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, start_new_session=True, env={**os.environ, "HOME": str(profile)})
        os.close(from_us)
        os.close(to_us)
        self.number, self.pending, self.session, self.events = 0, b"", None, []

    def __enter__(self):
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in "Page", "Runtime", "Log", "Network":
            self.call(f"{domain}.enable")
        return self

    def __exit__(self, *_):
        os.killpg(self.process.pid, signal.SIGKILL)  # Its processes are a group of their own.
        self.process.wait()
        os.close(self.writer)
        os.close(self.reader)
        ckptfs.wait_until(lambda: not self.is_running())

    def is_running(self):
        """Whether a process of this browser still runs, and may write to the profile."""
        for file in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                if self.profile in file.read_bytes():
                    return True
        return False

    def receive(self):
        deadline = time.monotonic() + SECONDS
        while b"\0" not in self.pending:
            if not select.select([self.reader], [], [], max(0, deadline - time.monotonic()))[0]:
                raise TimeoutError("Chromium does not answer")
            piece = os.read(self.reader, 1 << 16)
            if not piece:
                raise EOFError("Chromium has ended")
            self.pending += piece
        message, _, self.pending = self.pending.partition(b"\0")
        return json.loads(message)

    def call(self, method, **parameters):
        """The result of a command; what happens meanwhile is added to the events."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.writer, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.receive()
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise ValueError(f"{method}: {answer['error']}")
                return answer["result"]
            self.events.append(answer)

    def open(self, url):
        """Loads a page, even if only its fragment is another, and waits until its scripts have run."""
        self.call("Page.navigate", url="about:blank")
        self.call("Page.navigate", url=url)
        self.wait_for("document.readyState === 'complete' && location.protocol === 'file:'")

    def wait_for(self, condition):
        deadline = time.monotonic() + SECONDS
        while not self.value(condition):
            if time.monotonic() > deadline:
                raise TimeoutError(condition)
            time.sleep(0.02)

    def value(self, expression):
        """The value of an expression of JavaScript in the page."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise ValueError(f"{expression}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def press(self, key, code):
        for kind in "rawKeyDown", "keyUp":
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code)

    def screenshot(self):
        return base64.b64decode(self.call("Page.captureScreenshot")["data"])

    def complaints(self):
        """The messages of the console, such as errors and refused actions of the page."""
        return [event["params"] for event in self.events if event["method"] in (
            "Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded")]

    def requests(self):
        """The addresses that the page has requested."""
        return [event["params"]["request"]["url"] for event in self.events
                if event["method"] == "Network.requestWillBeSent"]


def luminances(png):
    """The luminance of each pixel of a PNG of 8-bit RGB or RGBA without interlacing, from 0 to 255."""
    data, at, header = b"", 8, None
    while at < len(png):
        length, kind = int.from_bytes(png[at:at + 4], "big"), png[at + 4:at + 8]
        chunk = png[at + 8:at + 8 + length]
        at += 12 + length
        if kind == b"IHDR":
            header = chunk
        elif kind == b"IDAT":
            data += chunk
    width, height = int.from_bytes(header[:4], "big"), int.from_bytes(header[4:8], "big")
    size = {2: 3, 6: 4}[header[9]]
    data, stride, above, found = zlib.decompress(data), size * width, None, []
    above = bytearray(stride)
    for row in range(height):
        begin = row * (stride + 1)
        line = unfilter(data[begin], bytearray(data[begin + 1:begin + 1 + stride]), above, size)
        found += [(299 * line[i] + 587 * line[i + 1] + 114 * line[i + 2]) // 1000 for i in range(0, stride, size)]
        above = line
    return found


def unfilter(kind, line, above, size):
    """A line of a PNG before its filter (https://www.w3.org/TR/png/#9Filters)."""
    for i in range(len(line)):
        left, corner = (line[i - size], above[i - size]) if i >= size else (0, 0)
        if kind == 1:
            predicted = left
        elif kind == 2:
            predicted = above[i]
        elif kind == 3:
            predicted = (left + above[i]) // 2
        elif kind == 4:
            guess = left + above[i] - corner
            predicted = min((abs(guess - left), 0, left), (abs(guess - above[i]), 1, above[i]),
                            (abs(guess - corner), 2, corner))[2]
        else:
            break
        line[i] = (line[i] + predicted) & 0xff
    return line
