"""Options of the command itself, and what its verbs load."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from importlib.metadata import version
from platform import python_version

import pytest

from tests.parts.deadlines import patience
from tests.parts.tree import ROOT


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        timeout=patience(60),
        check=False,
    )


@pytest.mark.slow
def test_the_version_is_that_of_the_package() -> None:
    done = run("-m", "vigil", "--version")
    assert (done.returncode, done.stdout) == (0, f"vigil {version('npu-vigil')}\n")


@pytest.mark.slow
@pytest.mark.parametrize("order", [("--version", "--json"), ("--json", "--version")])
def test_the_version_as_json_names_python_and_libraries(order: tuple[str, ...]) -> None:
    done = run("-m", "vigil", *order)
    answer = json.loads(done.stdout)
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    names = [re.split(r"[<>=,]", line)[0] for line in declared["project"]["dependencies"]]
    assert (answer["version"], answer["python"]) == (version("npu-vigil"), python_version())
    assert answer["libraries"] == {name: version(name) for name in names}
    # The tests run an editable installation of a checkout.
    assert answer["commit"] is None


@pytest.mark.slow
def test_json_without_version_is_refused() -> None:
    done = run("-m", "vigil", "--json", "status")
    assert done.returncode == 2
    assert "belongs to --version" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_completes_verbs(shell: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # The shell is that of the caller, and the one of make has no completion.
    monkeypatch.setenv("_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION", "1")
    done = run("-m", "vigil", "--show-completion", shell)
    assert done.returncode == 0
    assert "complete" in done.stdout


@pytest.mark.slow
def test_the_daemons_load_nothing_of_the_verbs_for_people() -> None:
    code = (
        "import sys, vigil.main\n"
        "packages = 'vigil.reports.', 'vigil.sources.'\n"
        "print(*(one for one in sys.modules if one.startswith(packages)))"
    )
    assert run("-c", code).stdout.split() == []


@pytest.mark.slow
def test_an_agent_loads_nothing_that_only_verbs_for_people_need() -> None:
    code = "import vigil.main, agent.daemon, agent.pages.routes, sys; print(*sys.modules)"
    loaded = run("-c", code).stdout.split()
    unwanted = (
        *("advisor", "aggregator", "elastic", "rich", "yaml"),
        *("vigil.reports", "vigil.sources.sources", "vigil.isolation.run", "vigil.scan.run"),
        *("contract.codes.reference", "contract.pages.rule_places"),
        *("importlib.metadata", "csv", "zipfile"),
    )
    assert "agent.daemon" in loaded
    assert [
        name
        for name in loaded
        if any(name == one or name.startswith(f"{one}.") for one in unwanted)
    ] == []


_OF_AN_AGENT = {
    *("agent", "collectors", "contract", "dcmi_shim", "pacing", "service", "stores", "vigil"),
    # Pages and the API server.
    *("aiohttp", "aiohappyeyeballs", "aiosignal", "attr", "frozenlist", "idna", "multidict"),
    *("propcache", "yarl"),
    # The command line, documents and metrics.
    *("annotated_doc", "shellingham", "typer", "typing_extensions", "msgspec", "prometheus_client"),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("store", "more"),
    [("kubernetes_api", set()), ("directory", set()), ("mqtt", {"aiomqtt", "paho"})],
)
def test_an_agent_loads_these_packages_and_no_other(store: str, more: set[str]) -> None:
    """Each further package is memory on every node: name it here, or import it where it is used."""
    code = "import vigil.main, agent.daemon, agent.pages.routes, sys\n"
    code += f"import stores.{store}.store\n"
    code += "print(*{name.partition('.')[0] for name in sys.modules} - sys.stdlib_module_names)"
    loaded = {
        name
        for name in run("-c", code).stdout.split()
        if not name.startswith("_") and name != "cython_runtime"
    }
    assert loaded == _OF_AN_AGENT | more


_LOADED = """
import importlib, json, os, sys
import vigil.main
loaded = {}
for verb, target in vigil.main._VERBS.items():
    reading, writing = os.pipe()
    if not os.fork():
        importlib.import_module(target.partition(":")[0])
        names = {name.partition(".")[0] for name in sys.modules}
        os.write(writing, json.dumps(sorted(names)).encode())
        os._exit(0)
    os.close(writing)
    with open(reading) as pipe:
        loaded[verb] = json.load(pipe)
    os.wait()
print(json.dumps(loaded))
"""
"""Imports each verb in a process of its own, which has loaded nothing but the command."""
_HEAVY = {
    *("aiofiles", "aiohttp", "aiomqtt", "google", "grpc", "kubernetes", "msgspec", "paho"),
    *("prometheus_client", "psutil", "pydantic", "requests", "rich", "urllib3", "yaml", "yarl"),
}
"""Third-party packages that a verb imports when it runs, and not for its help."""


@pytest.mark.slow
def test_no_verb_loads_a_heavy_package_before_it_runs() -> None:
    done = run("-c", _LOADED)
    loaded = {verb: set(names) for verb, names in json.loads(done.stdout).items()}
    assert all("typer" in names for names in loaded.values())
    assert {verb: names & _HEAVY for verb, names in loaded.items() if names & _HEAVY} == {}
