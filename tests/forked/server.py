"""Run programs in forks of an interpreter that has torch and tensordict loaded.

A fork runs a program as a new interpreter would: as ``__main__``, with its arguments, folder, environment, standard
streams and search path, in a session of its own, and ends with what the program has registered for its end.
"""

import builtins
import gc
import json
import os
import runpy
import select
import signal
import socket
import sys
import warnings
from pathlib import Path


def serve(path: str) -> None:
    """Fork for each client until this process's standard input ends; returns in forks, when their program has ended.

    Args:
        path: of the socket.
    """
    import tensordict  # noqa: F401

    listening = socket.socket(socket.AF_UNIX)
    listening.bind(path)
    listening.listen()
    print("ready", flush=True)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.collect()
    gc.freeze()  # forks share this memory
    waiting: set[int] = set()
    while True:
        ready, _, _ = select.select([listening, sys.stdin], [], [])
        waiting -= {pid for pid in waiting if os.waitpid(pid, os.WNOHANG)[0]}
        if sys.stdin in ready:
            return
        client, _ = listening.accept()
        header, fds, _, _ = socket.recv_fds(client, 8, 3)
        pid = os.fork()
        if pid == 0:
            listening.close()
            _run(client, int.from_bytes(header, "big"), fds)
            return
        waiting.add(pid)
        client.close()
        for fd in fds:
            os.close(fd)


def _run(client: socket.socket, size: int, fds: list[int]) -> None:
    text = b""
    while len(text) < size:
        text += client.recv(size - len(text))
    asked = json.loads(text)
    pid = os.fork()
    if pid:
        _wait(client, pid)
    client.close()
    os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number, fd in enumerate(fds):
        os.dup2(fd, number)
        os.close(fd)
    os.chdir(asked["folder"])
    os.environ.clear()
    os.environ.update(asked["environment"])
    more = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:0] = [folder for folder in more if folder and folder not in sys.path]
    _run_here(asked["arguments"])


def _wait(client: socket.socket, pid: int) -> None:
    """Send the exit status of the program to the client.

    If the client has ended, kill the program.
    """
    client.sendall(f"{pid}\n".encode())
    watched, ended = os.pidfd_open(pid), False
    while not ended:
        ready, _, _ = select.select([watched, client], [], [])
        if client in ready:
            os.killpg(pid, signal.SIGKILL)
        ended = watched in ready or client in ready
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    try:
        client.sendall(f"{status}\n".encode())
    finally:
        os._exit(0)


def _run_here(arguments: list[str]) -> None:
    """Run these arguments as ``python`` does."""
    main = sys.modules["__main__"].__dict__
    main.clear()
    main.update(__name__="__main__", __builtins__=builtins, __doc__=None, __spec__=None, __package__=None)
    while arguments[0] == "-W":
        sys.warnoptions.append(arguments[1])
        warnings.simplefilter(arguments[1])
        arguments = arguments[2:]
    if arguments[0] == "-m":
        sys.argv = arguments[1:]
        sys.path.insert(0, os.getcwd())
        runpy._run_module_as_main(arguments[1])  # what the interpreter calls
        return
    if arguments[0] == "-c":
        sys.argv = ["-c", *arguments[2:]]
        sys.path.insert(0, "")
        code = compile(arguments[1], "<string>", "exec", dont_inherit=True)
    else:
        sys.argv = arguments
        sys.path.insert(0, str(Path(arguments[0]).resolve().parent))
        main["__file__"] = arguments[0]
        code = compile(Path(arguments[0]).read_text(encoding="utf-8"), arguments[0], "exec", dont_inherit=True)
    exec(code, main)
