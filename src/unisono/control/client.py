"""A worker's line to the coordinator while the job runs: heartbeats out, news in, in one daemon thread."""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
import time
from collections.abc import Callable

from unisono.control import stack
from unisono.control.meeting import Endpoint
from unisono.control.messages import Beat, Broken, Bye, Ended, Failed, Late, Leaving, Message, Pulse, Quiet
from unisono.control.progress import Progress
from unisono.control.sockets import why_ended
from unisono.control.wire import WireError, decode, encode
from unisono.log import logger

BEAT_SECONDS = 1.0
"""Time between two heartbeats."""

_SEND_SECONDS = 5.0
_CHUNK = 64 * 1024


class Client:
    """The connection of this worker to the coordinator.

    Args:
        endpoint: The open connection, taken over.
        chief: Name of the worker that runs the coordinator, for messages.
        progress: What to tell in heartbeats.
        silence_seconds: Silence of the coordinator after which it counts as lost.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        chief: str,
        progress: Progress,
        silence_seconds: float,
    ) -> None:
        self._sock = endpoint.sock
        self._lines = endpoint.lines
        self._chief = chief
        self._progress = progress
        self._silence_seconds = silence_seconds
        self._on_broken: Callable[[Broken], None] | None = None
        self._late: dict[str, Late] = {}
        self._broken: Broken | None = None
        self._ended: Ended | None = None
        self._send_error: OSError | None = None
        self._news = threading.Condition()
        self._sending = threading.Lock()
        self._closing = False
        self._missed = False
        self._beat_at = 0.0
        self._waker, self._wake = socket.socketpair()
        self._thread = threading.Thread(target=self._run, name="unisono-control", daemon=True)

    def start(self) -> None:
        """Begins to send heartbeats."""
        self._sock.settimeout(_SEND_SECONDS)
        self._thread.start()

    @property
    def broken(self) -> Broken | None:
        """The first failure of the job, once one is known."""
        return self._broken

    def on_broken(self, call: Callable[[Broken], None]) -> None:
        """Has `call` called once with the first failure of the job: now if it is known, else by the client's thread."""
        with self._news:
            self._on_broken = call
            broken = self._broken
        if broken is not None:
            call(broken)

    @property
    def ended(self) -> bool:
        """Whether all scripts have ended."""
        return self._ended is not None

    def late(self, channel: str, count: int) -> Late | None:
        """Returns who had not arrived at an operation when the coordinator was last asked."""
        late = self._late.get(channel)
        return late if late is not None and late.count == count else None

    def wait_for_news(self, seconds: float, enough: Callable[[], bool]) -> bool:
        """Waits until `enough`, looked at whenever the coordinator has said something.

        Returns:
            Whether it came true in time.
        """
        with self._news:
            return self._news.wait_for(enough, seconds)

    def fail(self, failed: Failed, seconds: float) -> None:
        """Tells the others that this worker gives up; returns within about `seconds`, whatever happens."""
        self._closing = True
        if self._broken is None and self._send(failed):
            # The goodbye is answered by the end of the connection: then the message has been read.
            self._send(Bye())
            self._thread.join(seconds)
        self.close(0.0)

    def leave(self, seconds: float) -> bool:
        """Says that the script has ended, and waits until nobody needs this worker any more.

        Returns:
            Whether all workers are there and leave together.
        """
        if self._broken is None and self._send(Leaving(dict(self._progress.counts))):
            self.wait_for_news(seconds, lambda: self._ended is not None or self._broken is not None)
        return self._broken is None and self._ended is not None and self._ended.together

    def close(self, seconds: float) -> None:
        """Says goodbye and ends the connection and the thread."""
        self._closing = True
        if self._thread.is_alive():
            self._send(Bye())
            self._thread.join(seconds)
        self._wake.close()
        self._thread.join(1.0)
        self._sock.close()

    def _send(self, message: Message) -> bool:
        try:
            with self._sending:
                self._sock.sendall(encode(message))
            return True
        except OSError as error:
            # Half a line may have gone out. The reading thread sees the end of the connection, and says so.
            self._send_error = self._send_error or error
            with contextlib.suppress(OSError):
                self._sock.shutdown(socket.SHUT_RDWR)
            return False

    def _run(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._sock, selectors.EVENT_READ)
            selector.register(self._waker, selectors.EVENT_READ)
            self._serve(selector)
        self._waker.close()

    def _serve(self, selector: selectors.BaseSelector) -> None:
        heard = time.monotonic()
        while True:
            now = time.monotonic()
            if now >= self._beat_at:
                self._beat_at = now + BEAT_SECONDS
                self._send(self._beat())
            readable = [key.fileobj for key, _ in selector.select(max(0.0, self._beat_at - now))]
            if self._waker in readable:
                return
            if self._sock in readable:
                heard = time.monotonic()
                reason = self._read()
                if reason:
                    self._lost(reason)
                    return
            elif time.monotonic() - heard > self._silence_seconds:
                self._lost(f"Nothing was heard of it for {self._silence_seconds:.0f} s.")
                return

    def _beat(self) -> Beat:
        progress = self._progress
        where = stack.main_thread() if self._missed else ""
        return Beat(dict(progress.counts), progress.step, progress.phase, progress.waits(), where)

    def _read(self) -> str:
        """Takes in what has come; returns why the connection is of no more use, or ""."""
        try:
            data = self._sock.recv(_CHUNK)
            if not data:
                return why_ended(self._send_error)
            for line in self._lines.feed(data):
                self._take(decode(line))
        except TimeoutError:
            return ""
        except OSError as error:
            return why_ended(error)
        except WireError as error:
            return f"It sent what it should not ({error})."
        return ""

    def _take(self, message: Message) -> None:
        match message:
            case Pulse(late, show_stack):
                if show_stack and not self._missed:
                    self._beat_at = 0.0
                self._missed = show_stack
                with self._news:
                    self._late = {entry.channel: entry for entry in late}
                    self._news.notify_all()
            case Broken():
                self._break(message)
            case Ended():
                with self._news:
                    self._ended = message
                    self._news.notify_all()
            case Quiet(name, 0.0):
                logger.info("%s is heard of again.", name)
            case Quiet(name, seconds):
                logger.warning(
                    "%s has been silent for %.0f s; after %.0f s it counts as lost.",
                    name,
                    seconds,
                    self._silence_seconds,
                )
            case _:
                raise WireError(f"Unexpected {type(message).__name__}.")

    def _lost(self, reason: str) -> None:
        if self._closing or self._ended is not None:
            return
        text = f"The coordinator, which {self._chief} runs, is lost. {reason}"
        self._break(Broken("coordinator", 0, self._chief, -1, "", "", text, ""))

    def _break(self, broken: Broken) -> None:
        with self._news:
            if self._broken is not None:
                return
            self._broken = broken
            call = self._on_broken
            self._news.notify_all()
        if call is not None:
            call(broken)
