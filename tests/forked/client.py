"""Stand in for a program that the server runs: output, status and signals.

``python client.py SOCKET ARGUMENTS...`` has the arguments of ``python``. Light: it is started for each program.
"""

import json
import os
import signal
import socket
import sys


def main() -> None:
    """Ask the server for the program, wait for its end, and end as it did."""
    passed_on = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    signal.pthread_sigmask(signal.SIG_BLOCK, passed_on)  # one that comes before there is a program waits for it
    server = socket.socket(socket.AF_UNIX)
    server.connect(sys.argv[1])
    asked = {"arguments": sys.argv[2:], "folder": os.getcwd(), "environment": dict(os.environ)}
    socket.send_fds(server, [len(text := json.dumps(asked).encode()).to_bytes(8, "big")], [0, 1, 2])
    server.sendall(text)
    answers = server.makefile()
    pid = int(answers.readline())
    for number in passed_on:
        signal.signal(number, lambda number, frame: os.kill(pid, number))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, passed_on)
    status = int(answers.readline())
    if status < 0:
        if -status != signal.SIGKILL:
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status)


if __name__ == "__main__":
    main()
