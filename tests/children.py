"""Python code in a process of its own, to be killed: a fork of this one would inherit locks that its threads hold."""

import signal
import subprocess
import sys


def child(code: str, *args: object) -> subprocess.Popen[bytes]:
    """Run ``code`` with ``args`` in ``sys.argv[1:]``; what it prints can be read."""
    command = [sys.executable, "-c", code, *map(str, args)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, bufsize=0)


def kill_after(running: subprocess.Popen[bytes], signs: int) -> None:
    """Kill a child as soon as it has printed so many characters."""
    assert running.stdout is not None
    for _ in range(signs):
        assert running.stdout.read(1), "the child ended before it could be killed"
    running.send_signal(signal.SIGKILL)
    running.wait()
    running.stdout.close()
