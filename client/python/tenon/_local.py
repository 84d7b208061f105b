"""A private server of this process, on a Unix socket, stopped with it."""

from __future__ import annotations

import atexit
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence

from tenon.errors import Unavailable

_START_SECONDS = 60.0
_STOP_SECONDS = 10.0


def find_tenond(binary: str | os.PathLike[str] | None = None) -> str:
    """The program: as given, by TENON_TENOND, or on PATH."""
    named = os.fspath(binary) if binary is not None else os.environ.get("TENON_TENOND", "tenond")
    found = shutil.which(named)
    if found is None:
        raise Unavailable(f"there is no program '{named}': install tenond, name it by "
                          "tenond=... or TENON_TENOND, or give the address of a server")
    return found


class LocalServer:
    """Runs until `close()`, or the end of the process.

    The socket lies in a folder that nobody else may enter.
    """

    def __init__(self, binary: str | os.PathLike[str] | None = None,
                 flags: Sequence[str] = (), *, shares_memory: bool = False) -> None:
        program = find_tenond(binary)
        self._folder = tempfile.TemporaryDirectory(prefix="tenon-")
        folder = pathlib.Path(self._folder.name)
        self._log = folder / "log"
        self.address = f"unix:{folder / 'socket'}"
        if shares_memory:
            flags = [f"--shared_memory_socket={folder / 'memory'}", *flags]
        with open(self._log, "wb") as log:
            # A group of its own: Ctrl-C in a terminal cancels calls, it does not stop the server.
            self._process = subprocess.Popen(
                [program, f"--listen={self.address}", "--metrics=", "--drain_delay=0s",
                 "--grace_period=2s", *flags],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        self._owner = os.getpid()
        atexit.register(self.close)
        try:
            # Whoever connects before would wait for gRPC's next try, which is seconds away.
            wait_until((folder / "socket").exists, self.check)
        except BaseException:
            self.close()
            raise

    def log(self) -> str:
        """What the server has said so far."""
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    def check(self) -> None:
        """Unavailable, with the end of the log, when the process is gone."""
        if self._process.poll() is not None:
            last = "\n".join(self.log().splitlines()[-5:])
            raise Unavailable(f"tenond has ended with {self._process.returncode}:\n{last}")

    def close(self) -> None:
        atexit.unregister(self.close)
        if os.getpid() != self._owner:  # a fork's copy: the server belongs to the parent
            return
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._folder.cleanup()


def wait_until(ready: Callable[[], bool], check: Callable[[], None],
               seconds: float = _START_SECONDS) -> None:
    """Asks `ready` until it is true; `check` raises when that can't happen any more."""
    for pause in pauses(check, seconds):
        if ready():
            return
        time.sleep(pause)


def pauses(check: Callable[[], None], seconds: float = _START_SECONDS) -> Iterator[float]:
    """How long to wait before each further question; Unavailable when the time is over."""
    deadline = time.monotonic() + seconds
    pause = 0.005
    while True:
        yield pause
        check()
        if time.monotonic() > deadline:
            raise Unavailable(f"the server is not ready after {seconds:g} seconds")
        pause = min(2 * pause, 0.2)
