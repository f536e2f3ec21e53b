"""Commands of the product that come from a template process are like those of an interpreter."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest
import typer.main

from tests.parts.deadlines import patience, wait_until
from tests.parts.processes import PartFailed, Running
from tests.parts.template import Templates
from tests.vigil.stand import Stand
from tests.vigil.verbs import VERBS, aggregator
from vigil.main import app

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping


pytestmark = pytest.mark.daemon

_ROOT = Path(__file__).parents[1]
_VIGIL = (sys.executable, "-m", "vigil")
_SECONDS = 60.0
_LOOKS = """
import gc, json, locale, logging, os, random, resource, signal, sys, tempfile, threading, time

def names(numbers):
    return sorted(map(int, numbers))

def shown(name):
    with open(f"/proc/self/{name}", errors="surrogateescape") as file:
        return file.read().rstrip("\\0").split("\\0")

def stream(one):
    if one is None:
        return None
    return [one.name, one.mode, one.encoding, one.errors, one.line_buffering, one.write_through,
            type(one.buffer).__name__, one.closed, one.isatty()]

numbers = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}
print(json.dumps({
    "argv": [sys.argv, sys.orig_argv[1:], __name__, __file__],
    "path": sys.path,
    # Set where gRPC is imported: aggregator/grpc/__init__.py.
    "environment": {k: v for k, v in os.environ.items() if k != "GRPC_VERBOSITY"},
    "directory": os.getcwd(),
    "umask": os.umask(0),
    "parent": os.getppid(),
    "shown": [shown("cmdline"), sorted(shown("environ"))],
    "groups": [os.getsid(0) == os.getpid(), os.getpgrp() == os.getpid()],
    "handled": {int(n): str(signal.getsignal(n)) for n in numbers},
    "blocked": names(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
    "descriptors": [n for n in range(256) if os.path.exists(f"/proc/self/fd/{n}")],
    "streams": [stream(one) for one in (sys.stdin, sys.stdout, sys.stderr)],
    "limits": [resource.getrlimit(n) for n in range(16)],
    "locale": [locale.setlocale(locale.LC_ALL), sys.getfilesystemencoding()],
    "zone": time.tzname,
    "temporary": tempfile.gettempdir(),
    "threads": threading.active_count(),
    "garbage": [gc.isenabled(), gc.get_threshold(), gc.get_debug()],
    "logging": [len(logging.root.handlers), logging.root.level],
    "flags": list(sys.flags)[:15],
    "limit": sys.getrecursionlimit(),
    # Coverage.py has a tracer of its own in each process.
    "hooks": [sys.excepthook is sys.__excepthook__, type(sys.gettrace()), sys.getprofile()],
    "stdin": sys.stdin.read() if sys.stdin else None,
}, default=str))
"""


def both(templates: Templates, start: Callable[[], Any]) -> tuple[Any, Any]:
    """Return what ``start`` returns with a new interpreter, and with a template."""
    templates.are_used = False
    try:
        new = start()
    finally:
        templates.are_used = True
    return new, start()


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with an interpreter, for commands that look at themselves."""
    directory = tmp_path_factory.mktemp("environment")
    python = directory / "python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    return directory


def installed(directory: Path, code: str) -> str:
    """Write a command ``vigil`` that runs ``code`` into an environment; return its path."""
    command = directory / "vigil"
    command.write_text(f"#!{sys.executable}\n{code}")
    command.chmod(0o755)
    return str(command)


def is_of_a_template(pid: int) -> bool:
    """Return whether the process has the room for a command line that a template process has."""
    return len(Path(f"/proc/{pid}/cmdline").read_bytes()) > 10_000


def plain(**more: str) -> dict[str, str]:
    """Return an environment with ``more``, in which nothing depends on this machine."""
    return dict(os.environ) | {"LC_ALL": "C.UTF-8"} | more


_STATES: Mapping[str, dict[str, Any]] = {
    "usual": {},
    "variables": {"more": {"TZ": "Asia/Shanghai", "TMPDIR": "/var/tmp", "SOMETHING": "ä中\udcff"}},
    "another seed": {"more": {"PYTHONHASHSEED": "7"}},
    "empty environment": {"env": {"LC_ALL": "C.UTF-8"}},
    "another locale": {"env": {"LC_ALL": "POSIX"}},
    "directory": {"cwd": "/"},
    "umask": {"umask": 0o27},
    "session": {"start_new_session": True},
    "group": {"process_group": 0},
    "own input": {"stdin": None},
}


@pytest.mark.parametrize("state", _STATES)
def test_a_process_is_in_the_same_state(
    state: str, templates: Templates, environment: Path
) -> None:
    command = installed(environment, _LOOKS)
    options = {"env": plain(**_STATES[state].get("more", {}))} | _STATES[state]
    options.pop("more", None)
    if "stdin" not in options:
        options["input"] = "text"

    def looks() -> Any:
        done = subprocess.run(
            [command, "--an-option", "ü"], capture_output=True, text=True, check=True, **options
        )
        assert not done.stderr
        return json.loads(done.stdout)

    new, copied = both(templates, looks)
    assert copied == new
    assert new["parent"] == os.getpid()


def test_ignored_and_blocked_signals_stay_so(templates: Templates, environment: Path) -> None:
    command = installed(environment, _LOOKS)

    def looks() -> Any:
        done = subprocess.run([command], stdout=subprocess.PIPE, check=True, env=plain(), input=b"")
        return json.loads(done.stdout)

    before = (
        signal.signal(signal.SIGINT, signal.SIG_IGN),
        signal.signal(signal.SIGHUP, signal.SIG_IGN),
    )
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    try:
        new, copied = both(templates, looks)
    finally:
        signal.signal(signal.SIGINT, before[0])
        signal.signal(signal.SIGHUP, before[1])
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    assert copied == new
    assert new["blocked"] == [signal.SIGUSR1]
    assert new["handled"][str(int(signal.SIGINT))] == str(signal.SIG_IGN)


def test_passed_descriptors_keep_their_numbers(templates: Templates, environment: Path) -> None:
    reader, writer = os.pipe()
    command = installed(environment, f"import os, sys\nos.write({writer}, b'text')\n" + _LOOKS)

    def looks() -> Any:
        done = subprocess.run(
            [command], stdout=subprocess.PIPE, pass_fds=[writer], check=True, env=plain(), input=b""
        )
        assert os.read(reader, 10) == b"text"
        return json.loads(done.stdout)

    try:
        new, copied = both(templates, looks)
    finally:
        os.close(reader)
        os.close(writer)
    assert copied == new
    assert new["descriptors"] == [0, 1, 2, writer]


@pytest.mark.parametrize(
    "code",
    [
        "print('out')",
        "raise SystemExit(300)",
        "raise SystemExit('text')",
        "raise SystemExit(None)",
        "raise ValueError('text')",
        "raise KeyboardInterrupt",
        "import os; os.kill(os.getpid(), 9)",
        "import os; os._exit(7)",
        "import atexit, sys; atexit.register(print, 'later'); sys.exit(3)",
        "import threading, sys; threading.Timer(0.2, print, ['later']).start(); sys.exit(4)",
        "import sys; print('held back', end=''); sys.exit(5)",
        "import os, sys; print('lost'); os.close(1); sys.exit(6)",
        "print(len(__import__('random').randbytes(4)))",
    ],
)
def test_a_process_ends_the_same_way(code: str, templates: Templates, environment: Path) -> None:
    command = installed(environment, code)

    def ends() -> tuple[int, bytes, list[bytes]]:
        done = subprocess.run([command], capture_output=True, check=False, env=plain())
        # A traceback begins elsewhere.
        return done.returncode, done.stdout, done.stderr.splitlines()[-1:]

    new, copied = both(templates, ends)
    assert copied == new


def test_random_numbers_are_others_each_time(environment: Path) -> None:
    command = installed(environment, "import random, uuid; print(random.random(), uuid.uuid4())")
    shown = {
        subprocess.run([command], stdout=subprocess.PIPE, check=True, env=plain()).stdout
        for _ in range(3)
    }
    assert len(shown) == 3


@pytest.fixture
def stand() -> Iterator[Stand]:
    with Stand().serving() as stand:
        yield stand


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Yield an agent without a driver, which runs."""
    where = ("--store", f"directory:{tmp_path}", "--state-dir", str(tmp_path / "state"))
    process = subprocess.Popen(
        [*_VIGIL, "agent", "--node-name", "n", "--driver-root", "/nowhere", *where],
        stderr=subprocess.PIPE,
        env=plain(),
    )
    assert process.stderr is not None
    process.stderr.readline()
    yield process
    process.kill()
    process.communicate()


def test_a_daemon_is_a_child_that_can_be_waited_for(agent: subprocess.Popen[bytes]) -> None:
    assert is_of_a_template(agent.pid)
    assert psutil.Process(agent.pid).ppid() == os.getpid()
    assert agent.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        agent.wait(0.01)
    agent.kill()
    assert agent.wait(patience(_SECONDS)) == -signal.SIGKILL


def test_a_daemon_gets_signals(agent: subprocess.Popen[bytes]) -> None:
    agent.send_signal(signal.SIGSTOP)
    agent.send_signal(signal.SIGCONT)
    agent.terminate()
    assert agent.wait(patience(_SECONDS)) == 0


def test_orphans_of_a_daemon_do_not_become_children_of_the_tests(environment: Path) -> None:
    code = "import subprocess; print(subprocess.Popen(['sleep', '1']).pid)"
    command = installed(environment, code)
    done = subprocess.run([command], stdout=subprocess.PIPE, check=True, env=plain())
    assert psutil.Process(int(done.stdout)).ppid() != os.getpid()


async def test_asyncio_takes_commands_from_the_template() -> None:
    process = await asyncio.create_subprocess_exec(
        *_VIGIL, "validate", "-", stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=plain()
    )
    assert is_of_a_template(process.pid)
    output, _ = await process.communicate(b"{")
    assert process.returncode == 2
    assert output == b""


@pytest.mark.exec
def test_tests_of_the_start_have_an_interpreter() -> None:
    with subprocess.Popen([*_VIGIL, "validate", "-"], stdin=subprocess.PIPE) as process:
        assert not is_of_a_template(process.pid)


def test_a_directory_that_is_missing_is_an_error_of_the_start(tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    for command in ([*_VIGIL, "--version"], ["true"]):
        with pytest.raises(FileNotFoundError) as error:
            subprocess.run(command, cwd=missing, env=plain(), check=False)
        assert error.value.filename in (missing, str(missing))


def test_a_template_that_has_ended_is_not_replaced() -> None:
    with Templates() as templates:
        subprocess.run([*_VIGIL, "--version"], env=plain(), check=True, stdout=subprocess.DEVNULL)
        (template,) = templates._running.values()
        template._process.kill()
        for _ in range(2):
            with pytest.raises(PartFailed, match="the template process"):
                subprocess.run([*_VIGIL, "--version"], env=plain(), check=False)


def test_a_template_that_cannot_load_the_product_is_an_error(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -S "$@"\n')
    python.chmod(0o755)
    command = installed(tmp_path, "")
    with Templates(), pytest.raises(PartFailed, match="No module named"):
        subprocess.run([command], env=plain(), check=False)


_NO_STORE = ("--store", "directory:{directory}/store")
_CALLS: Mapping[str, tuple[str, ...]] = {
    **{name: (*words, "--server", "{url}", "--utc") for name, words in VERBS.items()},
    "advise": ("advise", "--dump", f"{_ROOT}/docs/examples/cluster.json", "--json"),
    "lint": ("lint", f"{_ROOT}/docs/examples/job-with-findings.yaml"),
    "prove": ("prove", "--state-dir", "{directory}"),
    "replay": ("replay", "--state-dir", "{directory}"),
    "scan": ("scan", "--node-name", "n", "--driver-root", "{directory}", *_NO_STORE),
    "validate": ("validate", f"{_ROOT}/docs/examples/cluster.json"),
    "forget": ("forget", "node-9", *_NO_STORE),
    "isolate": ("isolate", "node-1", "3", "--reason", "x", "--yes", *_NO_STORE),
    "release": ("release", "node-1", "3", "--yes", *_NO_STORE),
    "uninstall": ("uninstall", *_NO_STORE),
    "support": ("support", "--output", "{directory}/none/support.tar.gz", *_NO_STORE),
    "emulator": ("emulator", "status"),
    "simulate": ("simulate", "occur", "0", "80E01801"),
    # tests/vigil/demo plays it once with an interpreter, otherwise from the template.
    "demo": ("demo", "--nodes", "0"),
}
_DAEMONS: Mapping[str, tuple[str, ...]] = {
    "agent": ("agent", "--node-name", "n", "--driver-root", "{directory}", *_NO_STORE),
    "aggregator": ("aggregator", *_NO_STORE),
    "elastic": ("elastic", "--kubeconfig", "{directory}/none"),
}
_LATE_LINES: Mapping[str, tuple[str, ...]] = {
    "agent": (" inventory: ", " driver events: ", "it is searched every"),
    "aggregator": (),
}
"""What a daemon logs at a time of its own, perhaps after its pages have all metrics."""
_BY_LOAD = re.compile("slow commit|takes longer|stood still")
_END_LINES = {
    "agent": "INFO agent.daemon: ends: a signal requested it",
    "aggregator": "INFO aggregator.process: received a signal, stopping",
}


def test_each_verb_is_compared() -> None:
    command = typer.main.get_command(app)
    assert isinstance(command, typer.core.TyperGroup)
    assert {*_CALLS, *_DAEMONS} == set(command.list_commands(typer.Context(command)))


@pytest.mark.parametrize("verb", _CALLS)
def test_a_verb_does_the_same(
    verb: str, stand: Stand, templates: Templates, tmp_path: Path
) -> None:
    stand.answers = aggregator()
    words = [word.format(url=stand.url, directory=tmp_path) for word in _CALLS[verb]]

    def runs() -> tuple[int, str, str]:
        done = subprocess.run(
            [*_VIGIL, *words], capture_output=True, text=True, check=False, env=plain(COLUMNS="80")
        )
        return done.returncode, _without_numbers(done.stdout), _without_numbers(done.stderr)

    new, copied = both(templates, runs)
    assert copied == new
    assert new[1] + new[2]


class _Daemon:
    """A daemon in a directory of its own."""

    def __init__(self, verb: str, directory: Path) -> None:
        directory.mkdir()
        self._directory = directory
        words = [word.format(directory=directory) for word in _DAEMONS[verb]]
        if verb != "elastic":
            words += ["--state-dir", str(directory / "state"), "--listen", "127.0.0.1:0"]
        self.running = Running([*_VIGIL, *words], directory / "log", plain())

    def logged(self) -> set[str]:
        """Return what it has logged, without times and other numbers, and not what a load adds."""
        lines = self.running.log.read_text().replace(str(self._directory), "").splitlines()
        lines = [line for line in lines if _BY_LOAD.search(line) is None]
        return {_without_numbers(line.partition(" ")[2]) for line in lines}

    def waits_for_lines(self, *parts: str) -> None:
        """Wait until it has logged each of these parts."""
        self.running.wait_until(
            lambda: all(part in self.running.log.read_text() for part in parts), _SECONDS
        )

    def metrics(self) -> set[str]:
        """Return the names and types of its metrics; nothing before it listens."""
        listening = re.search(r"listening on (http://\S+)", self.running.log.read_text())
        if listening is None:
            return set()
        with urllib.request.urlopen(
            f"{listening[1]}/metrics", timeout=patience(_SECONDS)
        ) as answer:
            return set(re.findall("^# TYPE (.*)$", answer.read().decode(), re.MULTILINE))


@pytest.mark.parametrize("verb", ["agent", "aggregator"])
def test_a_daemon_does_the_same(verb: str, templates: Templates, tmp_path: Path) -> None:
    numbers = itertools.count()
    new, copied = both(templates, lambda: _Daemon(verb, tmp_path / str(next(numbers))))
    assert [is_of_a_template(one.running.pid) for one in (new, copied)] == [False, True]
    new.running.wait_until(lambda: len(new.metrics()) > 20, _SECONDS)
    new.running.wait_until(lambda: copied.metrics() == new.metrics(), _SECONDS)
    for daemon in (new, copied):
        daemon.waits_for_lines(*_LATE_LINES[verb])
    wait_until(
        lambda: copied.logged() == new.logged(),
        lambda: f"their logs are equal; lines of one: {copied.logged() ^ new.logged()}",
    )
    for daemon in (new, copied):
        daemon.running.signal(signal.SIGTERM)
        assert daemon.running.wait(patience(_SECONDS)) == 0
    # One may log more until it ends: they do not end at the same time.
    assert all(_END_LINES[verb] in daemon.logged() for daemon in (new, copied))


def test_a_daemon_that_cannot_start_does_the_same(templates: Templates, tmp_path: Path) -> None:
    numbers = itertools.count()
    new, copied = both(templates, lambda: _Daemon("elastic", tmp_path / str(next(numbers))))
    assert [one.running.wait(patience(_SECONDS)) for one in (new, copied)] == [2, 2]
    assert copied.logged() == new.logged()
    assert new.logged()


def _without_numbers(text: str) -> str:
    return re.sub(r"\d+", "0", text)
