"""A TCP proxy that makes a server far: each part of a stream arrives after a delay, all streams share a rate.

For machines whose kernel has no netem. A connection has at most `window` bytes on the way, as TCP has, but begins with
all of it: slow start is not modelled.
"""

import collections
import socket
import threading
import time


class Link:
    """One direction of the link: a rate that all connections share, and a delay."""

    def __init__(self, delay, rate):
        self.delay, self.rate = delay, rate  # seconds, bytes per second or 0
        self.free = 0.0
        self.lock = threading.Lock()

    def arrival(self, count):
        with self.lock:
            self.free = max(self.free, time.monotonic()) + (count / self.rate if self.rate else 0)
            return self.free + self.delay


def carry(link, source, target, window):
    """Carries one direction of a connection until its end."""
    parts, on_the_way, ended = collections.deque(), 0, False
    changed = threading.Condition()

    def deliver():
        nonlocal on_the_way
        while True:
            with changed:
                changed.wait_for(lambda: parts or ended)
                if not parts:
                    break
                at, data = parts.popleft()
            time.sleep(max(0, at - time.monotonic()))
            try:
                target.sendall(data)
            except OSError:
                break
            with changed:
                on_the_way -= len(data)
                changed.notify()
        try:
            target.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    threading.Thread(target=deliver, daemon=True).start()
    while True:
        try:
            data = source.recv(1 << 18)
        except OSError:
            data = b""
        with changed:
            if not data:
                ended = True
                changed.notify()
                return
            parts.append((link.arrival(len(data)), data))
            on_the_way += len(data)
            changed.notify()
            changed.wait_for(lambda: on_the_way < window)


def serve(port, to_port, round_trip, rate, window=6 << 20):
    """Accepts connections until the returned socket is closed."""
    there, back = Link(round_trip / 2, 0), Link(round_trip / 2, rate)
    listener = socket.create_server(("127.0.0.1", port), backlog=128)

    def accept():
        while True:
            try:
                near = listener.accept()[0]
            except OSError:
                return
            far = socket.create_connection(("127.0.0.1", to_port))
            for s in (near, far):
                s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=carry, args=(there, near, far, window), daemon=True).start()
            threading.Thread(target=carry, args=(back, far, near, window), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    return listener


if __name__ == "__main__":
    import sys

    port, to_port, milliseconds, rate = (float(x) for x in sys.argv[1:5])
    serve(int(port), int(to_port), milliseconds / 1e3, rate)
    threading.Event().wait()
