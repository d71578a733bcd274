#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0

"""Tests the page of ronda-monitor in a real browser, with a real job in which one rank is late.

Without Chromium, the test is skipped, with the reason. Its outputs include a screenshot of the
page.
"""

from __future__ import annotations

import base64
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

_TIMEOUT = 60.0
_RANKS = 4
_LATE_RANK = 2
_NAME = "resnet50"
# Job commands, and what the heading of the page shows for each of them.
_SHORT_COMMANDS = {
    "build/bin/train": "train",
    "python3 ./src/train.py --data=/data/images --model a/b /": (
        "python3 train.py --data=images --model a/b /"
    ),
    "'/opt/my programs/train' -o ../out/": "'train' -o out/",
    "sh " + 90 * "x": "sh " + 76 * "x" + "\u2026",
}
_PLOTS = ("lateness", "step", "bandwidth")


class Browser:
    """A headless Chromium with one page, driven through its debugging pipe."""

    def __init__(self, program: str, folder: pathlib.Path) -> None:
        to_browser, self._commands = os.pipe()
        self._replies, from_browser = os.pipe()
        # Chromium expects the pipes as descriptors 3 and 4, which this process may already be
        # using.
        script = f'exec 3<&{to_browser} 4>&{from_browser}; exec "$@"'
        options = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-first-run",
        ]
        self._process = subprocess.Popen(
            ["/bin/bash", "-c", script, "bash", program, *options, "--remote-debugging-pipe"]
            + [f"--user-data-dir={folder}", "--window-size=1200,980", "about:blank"],
            pass_fds=(to_browser, from_browser),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "HOME": str(folder)},
        )
        os.close(to_browser)
        os.close(from_browser)
        self._rest = b""
        self._number = 0
        self._session: str | None = None
        self.complaints: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)[
            "sessionId"
        ]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def close(self) -> None:
        self._process.kill()
        self._process.wait()

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            more = os.read(self._replies, 1 << 16)
            if not more:
                raise AssertionError("the browser has ended")
            self._rest += more
        message, self._rest = self._rest.split(b"\0", 1)
        read: dict[str, Any] = json.loads(message)
        return read

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        command = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            command["sessionId"] = self._session
        os.write(self._commands, json.dumps(command).encode() + b"\0")
        while True:
            message = self._read()
            if message.get("method") in ("Runtime.exceptionThrown", "Log.entryAdded"):
                self.complaints.append(json.dumps(message["params"]))
            if message.get("id") == self._number:
                if "error" in message:
                    raise AssertionError(f"{method}: {message['error']}")
                result: dict[str, Any] = message["result"]
                return result

    def evaluate(self, expression: str) -> Any:
        reply = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in reply:
            raise AssertionError(f"{expression}: {reply['exceptionDetails']}")
        return reply["result"].get("value")

    def wait_for(self, expression: str, holds: Callable[[Any], bool]) -> Any:
        deadline = time.monotonic() + _TIMEOUT
        while True:
            value = self.evaluate(expression)
            if holds(value):
                return value
            if time.monotonic() > deadline:
                text = self.evaluate("document.body?.innerText")
                raise AssertionError(
                    f"{expression} is still {value!r}; {self.complaints}; the page:\n{text}"
                )
            time.sleep(0.2)


def _points(plot: str) -> str:
    lines = f"document.querySelectorAll('#plot-{plot} polyline')"
    return f"[...{lines}].map(line => line.getAttribute('points'))"


def _check_page(browser: Browser, address: str, token: str) -> None:
    browser.call("Page.navigate", url=address)
    # The headless browser cannot ask for a password, so it only reports the refusal.
    browser.wait_for("0", lambda _: any("status of 401" in each for each in browser.complaints))
    browser.complaints.clear()
    browser.call("Page.navigate", url=address.replace("://", f"://any:{token}@"))
    browser.wait_for(
        "document.querySelectorAll('#ranks tbody tr').length", lambda rows: rows == _RANKS
    )
    _check_title(browser)

    def has_lines(lines: list[str]) -> bool:
        return len(lines) == _RANKS and all(len(line.split()) >= 5 for line in lines)

    for plot in _PLOTS:
        before = browser.wait_for(_points(plot), has_lines)
        browser.wait_for(_points(plot), lambda lines, before=before: lines != before)
    why = browser.wait_for(
        "document.getElementById('why').innerText", lambda text: f"rank {_LATE_RANK} " in text
    )
    assert "came last" in why or "was last" in why or "wait" in why, why
    blamed = browser.wait_for(
        "document.querySelector('tr.blamed td')?.innerText", lambda text: text is not None
    )
    assert blamed.strip() == str(_LATE_RANK), blamed
    _check_last_step(browser)
    resources = "performance.getEntriesByType('resource')"
    origins = browser.evaluate(f"[...new Set({resources}.map(each => new URL(each.name).origin))]")
    assert origins == [address.rstrip("/")], origins
    assert not browser.complaints, browser.complaints


def _check_title(browser: Browser) -> None:
    """Expects the program and its arguments without folders in the heading, and the whole command
    in the tooltip.
    """
    title = browser.evaluate("document.getElementById('title').innerText")
    assert title == f"{_NAME}: stepping_rank end", title
    tooltip = browser.evaluate("document.getElementById('title').title")
    assert re.fullmatch(rf"{_NAME}: /\S+/stepping_rank /\S+/end", tooltip), tooltip
    for command, expected in _SHORT_COMMANDS.items():
        short = browser.evaluate(f"shortCommand({json.dumps(command)})")
        assert short == expected, short


def _width(kind: str, rank: int) -> str:
    """Returns JavaScript for the total width of an activity of a rank in the picture of the last
    step."""
    parts = f"document.querySelectorAll('#rows svg[data-rank=\"{rank}\"] rect.{kind}')"
    return f"[...{parts}].reduce((sum, part) => sum + part.width.baseVal.value, 0)"


def _check_last_step(browser: Browser) -> None:
    """Expects that rank 0 waits far longer than the late rank, and that data moves on all ranks."""
    for rank in range(_RANKS):
        browser.wait_for(_width("moves", rank), lambda width: width > 0)
    late, other = _width("waits", _LATE_RANK), _width("waits", 0)
    browser.wait_for(f"{other} - {late}", lambda difference: difference > 100)
    names = "[...document.querySelectorAll('#buckets td:first-child')].map(cell => cell.innerText)"
    browser.wait_for(names, lambda found: sorted(found) == ["done", "gradient"])
    numbers = (
        "[...document.querySelectorAll('#numbers-step span')].map(span => Number(span.innerText))"
    )
    browser.wait_for(numbers, lambda found: len(found) == 4 and found[0] > found[-1] > 0)


def _run_job(folder: pathlib.Path, program: str) -> None:
    places = ["programs/monitor/serve", "programs/rondarun"]
    environment = {**os.environ, "XDG_RUNTIME_DIR": str(folder)}
    environment["PATH"] = os.pathsep.join(
        [*(str(pathlib.Path(place).resolve()) for place in places), os.environ["PATH"]]
    )
    end = folder / "end"
    rank = str(pathlib.Path("tests/programs/monitor/serve/stepping_rank").resolve())
    command = ["rondarun", "--monitor", "--name", _NAME, "-np", str(_RANKS), rank, str(end)]
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as job:
        try:
            assert job.stderr is not None
            line = next((line for line in job.stderr if "http://" in line), "")
            found = re.search(r"(http://[^ ]+/) shows job .*; the token is in (\S+)", line)
            assert found, line
            browser = Browser(program, folder / "browser")
            try:
                _check_page(browser, found[1], pathlib.Path(found[2]).read_text().strip())
                picture = base64.b64decode(browser.call("Page.captureScreenshot")["data"])
                outputs = pathlib.Path(os.environ.get("TEST_UNDECLARED_OUTPUTS_DIR", folder))
                (outputs / "monitor.png").write_bytes(picture)
            finally:
                browser.close()
            end.touch()
            assert job.wait(_TIMEOUT) == 0, job.returncode
        finally:
            job.kill()


def main() -> int:
    """Runs the tests. Returns the exit code."""
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        print("SKIPPED: no Chromium is here: apt-get install chromium")
        if report := os.environ.get("XML_OUTPUT_FILE"):
            case = '<testcase name="chromium" result="skipped"/>'
            suite = f'<testsuite name="browser">{case}</testsuite>'
            pathlib.Path(report).write_text(
                f'<testsuites tests="1" failures="0">{suite}</testsuites>\n'
            )
        return 0
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        _run_job(pathlib.Path(folder), program)
    print("the page moves, and names the late rank")
    return 0


if __name__ == "__main__":
    sys.exit(main())
