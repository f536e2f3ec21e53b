"""Makes the parts of ``daemonset/chart`` that are the same elsewhere, of their sources.

::

    python -m tests.packaging.chart_files

From ``daemonset`` come templates of all objects but workloads and what has values of its own
(``BY_HAND``), from ``monitoring`` PodMonitors, rules and dashboards, and from the configurations of
the daemons the schema of their settings. kustomize shows which rules the overlays leave to a role,
and which objects they and the components delete.
"""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeAlias, get_args, get_origin

import msgspec
import yaml

from agent.config import AgentConfiguration
from aggregator.config import AggregatorConfiguration
from contract.settings import Section
from elastic.config import ElasticConfiguration
from tests.parts.helm import CHART
from tests.parts.kustomize import MANIFESTS, build, build_with
from tests.parts.tree import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MONITORING = ROOT / "monitoring"
SCHEMA = CHART / "values.schema.json"

Identity: TypeAlias = tuple[str, str, str]
"""Kind, namespace (empty: none) and name of an object."""


class Value(NamedTuple):
    """What a user of the chart sets for a component or an overlay."""

    key: str
    """Below ``.Values``, with dots."""
    value: bool | str

    def guard(self, *, on: bool = True) -> str:
        """Return the condition of a template that holds where it is set; with ``on`` false, not."""
        if isinstance(self.value, bool):
            return f".Values.{self.key}" if self.value is on else f"not .Values.{self.key}"
        return f'{"eq" if on else "ne"} .Values.{self.key} "{self.value}"'


COMPONENTS = {
    "advice": Value("advice.enabled", True),
    "agent-tls": Value("agent.tls.enabled", True),
    "agent-users": Value("agent.users.enabled", True),
    "aggregator-network-policy": Value("networkPolicy.pages.restricted", True),
    "aggregator-tls": Value("aggregator.tls.enabled", True),
    "aggregator-tokens": Value("aggregator.tokens.enabled", True),
    "aggregator-users": Value("aggregator.users.enabled", True),
    "device-plugin-roles": Value("devicePluginRoles.enabled", True),
    "device-taints": Value("deviceTaints.enabled", True),
    "dpc-storage": Value("agent.dpcStorage.enabled", True),
    "dtfs-storage": Value("agent.dtfsStorage.enabled", True),
    "elastic": Value("elastic.enabled", True),
    "elastic-dead-nodes": Value("elastic.deadNodes.enabled", True),
    "elastic-login": Value("elastic.login.enabled", True),
    "elastic-network-faults": Value("elastic.networkFaults.enabled", True),
    "grpc": Value("grpc.mode", "tls"),
    "grpc-plaintext": Value("grpc.mode", "plaintext"),
    "mounted-driver": Value("agent.mountedDriver.enabled", True),
    "node-conditions": Value("nodeConditions.enabled", True),
    "node-taints": Value("nodeTaints.enabled", True),
    "without-own-node-only": Value("ownNodeOnly.enabled", False),
    "without-privileged": Value("agent.privileged", False),
}
"""The value for each folder of ``daemonset/components``.

Beside a row here, a new component needs four things: its value in ``values.yaml`` and in
``values.schema.json`` (a switch takes a line), its conditions in the template of the workload that
it patches, and a row in docs/installation.md. An option that it switches on with its rights belongs
to ``OF_THE_CHART``. This program adds its other objects and the schema of its settings.
"""

NEEDS = {
    "agent-users": ("agent-tls",),
    "aggregator-tokens": ("aggregator-tls",),
    "aggregator-users": ("aggregator-tls",),
    "elastic": ("advice",),
    "elastic-dead-nodes": ("advice", "elastic"),
    "elastic-login": ("advice", "elastic", "aggregator-tls", "aggregator-tokens"),
    "elastic-network-faults": ("advice", "elastic"),
}
"""Components that must stand before a component, in the order of a kustomization."""

OVERLAYS = {
    "base": Value("profile", "base"),
    "overlays/beside-device-plugin": Value("profile", "beside-device-plugin"),
    "overlays/node-info-only": Value("profile", "node-info-only"),
    "overlays/shadow": Value("profile", "shadow"),
    "overlays/with-clusterd-clients": COMPONENTS["grpc-plaintext"],
    "overlays/with-heartbeat-annotations": Value("agent.heartbeatGeneration", "annotation"),
}
"""The value for ``base`` and each folder of ``daemonset/overlays``. Those without a profile stand
on ``base``."""

FULLEST = "overlays/beside-device-plugin"
"""The overlay with all objects; the components are built on it."""

BY_HAND = (
    *("/agent.yaml", "/aggregator.yaml", "/elastic.yaml", "/namespaces.yaml"),
    *("/grpc/service.yaml", "/grpc-plaintext/service.yaml", "/network-policy.yaml"),
)
"""Ends of the paths of sources whose templates are written by hand, because they have values."""

OF_THE_CHART = {
    "agent": {
        *("node_name", "state_dir", "listen", "kubeconfig", "documents", "shadow"),
        "heartbeat.generation",
        *("pages.certificate_file", "pages.key_file", "pages.users_file"),
    },
    "aggregator": {
        *("state_dir", "listen", "kubeconfig", "advice.enabled", "grpc.listen", "grpc.plaintext"),
        *("grpc.certificate_file", "grpc.key_file", "grpc.client_ca_file"),
        *("pages.certificate_file", "pages.key_file", "pages.users_file", "pages.tokens"),
        *("node_conditions.enabled", "node_taints.enabled", "device_taints.enabled"),
    },
    "elastic": {"state_dir", "listen", "kubeconfig", "act", "network_faults", "dead_nodes"},
}
"""Options that are no settings: the chart sets them, or they go with rights or other objects."""

_MODELS: dict[str, type[Section]] = {
    "agent": AgentConfiguration,
    "aggregator": AggregatorConfiguration,
    "elastic": ElasticConfiguration,
}
_MAX_LINE = 100
_COMPONENT = "app.kubernetes.io/component"
_OF_VENDOR = "device-plugin-roles"
_VENDOR_METADATA = '"npu-vigil.metadataOfVendor" $'
_HEAD = "{{{{- /* Generated by python -m tests.packaging.chart_files from {}. */ -}}}}\n"
_IDENTITY_LINE = re.compile(r"  (?:name|namespace): \S+$")


def identity(item: dict[str, Any]) -> Identity:
    """Return how an object is identified."""
    metadata = item["metadata"]
    return item["kind"], metadata.get("namespace", ""), metadata["name"]


@cache
def built(folder: str, *components: str) -> dict[Identity, dict[str, Any]]:
    """Return the objects that kustomize renders for an overlay with components."""
    if not components:
        return {identity(item): item for item in build(folder)}
    with TemporaryDirectory() as place:
        return {identity(item): item for item in build_with(Path(place), folder, *components)}


def values_of(overlay: str, components: Iterable[str] = ()) -> dict[str, Any]:
    """Return what a user of the chart sets for an overlay with components, as a tree."""
    values = [OVERLAYS[overlay], *(COMPONENTS[component] for component in components)]
    if not any(value.key == "profile" for value in values):
        values.insert(0, OVERLAYS["base"])
    tree: dict[str, Any] = {}
    for key, value in values:
        *above, last = key.split(".")
        table = tree
        for part in above:
            table = table.setdefault(part, {})
        table[last] = value
    return tree


def files() -> dict[Path, str]:
    """Return the text of each generated file of the chart."""
    texts = {CHART / "templates" / name: text for name, text in _templates()}
    texts[CHART / "files" / "rules.yml"] = (MONITORING / "rules.yml").read_text(encoding="utf-8")
    for file in sorted((MONITORING / "dashboards").glob("*.json")):
        texts[CHART / "files" / "dashboards" / file.name] = file.read_text(encoding="utf-8")
    return texts | {SCHEMA: _schema()}


def _templates() -> Iterator[tuple[str, str]]:
    """Yield name and text of each generated template."""
    for folder in ("base", FULLEST):
        for source in _sources(folder):
            yield source.name, _template(source, None)
    for component, value in COMPONENTS.items():
        for source in _sources(f"components/{component}"):
            yield f"{component}-{source.name}", _template(source, value.guard())
    source = MONITORING / "pod-monitors.yaml"
    yield source.name, _template(source, ".Values.monitoring.podMonitors.enabled")


def _sources(folder: str) -> Iterator[Path]:
    """Yield the files with objects of a folder that are not written by hand."""
    kustomization = yaml.safe_load((MANIFESTS / folder / "kustomization.yaml").read_text())
    for name in kustomization.get("resources", ()):
        source = MANIFESTS / folder / name
        if source.is_file() and not str(source).endswith(BY_HAND):
            yield source


def _template(source: Path, guard: str | None) -> str:
    """Return the template of a source; without ``guard``, its objects depend on the profile."""
    text = source.read_text(encoding="utf-8")
    assert "{{" not in text, f"{source}: Helm would take {{{{ for an action"
    documents = [document.strip("\n") for document in text.split("\n---\n")]
    if guard is not None:
        helper = _VENDOR_METADATA if source.parent.name == _OF_VENDOR else None
        body = _guarded("---\n".join(_document(one, helper) for one in documents), guard)
    else:
        body = "---\n".join(_by_profile(document) for document in documents)
    return _HEAD.format(source.relative_to(ROOT)) + body


def _guarded(text: str, guard: str) -> str:
    return f"{{{{- if {guard} }}}}\n{text}{{{{- end }}}}\n"


def _by_profile(text: str) -> str:
    """Return an object where its overlays have it, and no component deletes it."""
    item = yaml.safe_load(text)
    body = _document(text)
    for component, value in COMPONENTS.items():
        if identity(item) not in built(FULLEST, *NEEDS.get(component, ()), component):
            body = _guarded(body, value.guard(on=False))
    has = {folder: identity(item) in built(folder) for folder in _profiles()}
    if sum(has.values()) == 1:
        return _guarded(body, OVERLAYS[next(folder for folder in has if has[folder])].guard())
    for folder, is_there in has.items():
        if not is_there:
            body = _guarded(body, OVERLAYS[folder].guard(on=False))
    return body


def _profiles() -> list[str]:
    """Return the overlays that are profiles."""
    return [folder for folder, value in OVERLAYS.items() if value.key == "profile"]


def _document(text: str, metadata: str | None = None) -> str:
    """Return an object with labels and annotations of the chart, and the rules of each profile."""
    item = yaml.safe_load(text)
    lines = text.splitlines()
    begin = lines.index("metadata:") + 1
    end = next((n for n in range(begin, len(lines)) if lines[n][0] != " "), len(lines))
    lines[begin:end] = [
        *(line for line in lines[begin:end] if _IDENTITY_LINE.match(line)),
        f"  {{{{- include {metadata or _metadata(item)} | nindent 2 }}}}",
    ]
    if "rules" in item:
        rules = lines.index("rules:")
        lines[rules:] = _rules(item, lines[rules:])
    if item["kind"] == "PodMonitor":
        daemon = item["metadata"]["name"].removeprefix("npu-vigil-")
        call = f'include "npu-vigil.endpoint" (dict "top" $ "daemon" "{daemon}")'
        lines.insert(lines.index("    - port: http") + 1, f"      {{{{- {call} | nindent 6 }}}}")
    return "\n".join(lines) + "\n"


def _metadata(item: dict[str, Any]) -> str:
    """Return the call of the helper that writes labels and annotations."""
    labels = item["metadata"].get("labels", {})
    words = ['"top" $']
    if _COMPONENT in labels:
        words.append(f'"component" "{labels[_COMPONENT]}"')
    if item["apiVersion"].startswith("monitoring.coreos.com/"):
        words.append('"labels" .Values.monitoring.labels')
    return f'"npu-vigil.metadata" (dict {" ".join(words)})'


def _rules(item: dict[str, Any], lines: list[str]) -> list[str]:
    """Return the lines with the rules of a role: those of the source, and those of each overlay."""
    branches: list[str] = []
    for folder in _profiles():
        rules = built(folder).get(identity(item), item)["rules"]
        if rules != item["rules"]:
            branches += [
                f"{{{{- {'else ' if branches else ''}if {OVERLAYS[folder].guard()} }}}}",
                *yaml.safe_dump({"rules": rules}, default_flow_style=None).splitlines(),
            ]
    return [*branches, "{{- else }}", *lines, "{{- end }}"] if branches else lines


def _schema() -> str:
    """Return the schema of the values, with the settings of each daemon as they are now."""
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    schema["$defs"] |= {f"{name}Settings": _settings(name) for name in _MODELS}
    return _as_json(schema) + "\n"


def _as_json(value: Any, indent: str = "") -> str:
    """Return JSON with each object on a line of its own that is short."""
    line = json.dumps(value)
    if not isinstance(value, dict) or len(indent) + len(line) < _MAX_LINE:
        return line
    below = f"{indent}  "
    members = (f"{below}{json.dumps(key)}: {_as_json(value[key], below)}" for key in value)
    return "{\n" + ",\n".join(members) + f"\n{indent}}}"


def _settings(daemon: str, model: type[Section] | None = None, above: str = "") -> dict[str, Any]:
    """Return the schema of the settings of a daemon, or of a section of them."""
    properties: dict[str, Any] = {}
    for field in msgspec.structs.fields(model or _MODELS[daemon]):
        name, annotation = field.name, field.type
        key = f"{above}{name}"
        if key in OF_THE_CHART[daemon]:
            continue
        if isinstance(annotation, type) and issubclass(annotation, Section):
            properties[name] = _settings(daemon, annotation, f"{key}.")
        else:
            properties[name] = {"type": _json_type(annotation)}
    return {"type": "object", "additionalProperties": False, "properties": properties}


def _json_type(annotation: Any) -> str:
    """Return the type that an option has in YAML; a table is a text, as in the environment."""
    kind = get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation
    if get_origin(kind) is tuple:
        return "array"
    return {bool: "boolean", int: "integer", float: "number"}.get(kind, "string")


if __name__ == "__main__":
    for path, text in files().items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
