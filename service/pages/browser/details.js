// Views of one node, one fault, the jobs that are hit and the timeline; and those of the agent.

import { ask, currentLanguage, daemonNow, el, facts, hasText, link, moment, section, since, t, table } from "./dom.js";
import { word } from "./fleet.js";

const POLL_MS = 5_000;
const AGAIN_MS = 1_000;
const LIMIT = 1_000;
const RUNBOOK_KINDS = { chip: "Chip", network: "Chip", switch: "Switch", node: "Server", public: "Public", dpu: "Dpu" };
const isAgent = document.documentElement.dataset.daemon === "agent";
const WITHOUT_RUNBOOK = ["NotHandleFault", "NotHandle"];

/** A view of an answer of the daemon. It asks again when a node that `concerns` it has changed. */
class Asking {
  #make;
  #concerns;
  #asking = false;
  #wantsMore = false;
  #timer = 0;
  #isClosed = false;

  constructor(make, { concerns = () => false, everyMs = 0 } = {}) {
    this.#make = make;
    this.#concerns = concerns;
    this.element = el("div", { "aria-busy": "true" }, el("p", {}, t("loading")));
    this.again();
    if (everyMs) this.#timer = setInterval(() => document.hidden || this.again(), everyMs);
  }

  update(names) {
    if (this.#concerns(names)) this.again();
  }

  event(kind, change) {
    if (kind === "job" && this.#concerns(new Set(change.nodes))) this.again();
  }

  #show(parts) {
    const active = this.element.contains(document.activeElement) ? document.activeElement : null;
    // What is selected for a copy stays; the next answer shows the change.
    if (active?.tagName === "TEXTAREA") return;
    const attribute = active?.hasAttribute("href") ? "href" : "aria-label";
    const value = active?.getAttribute(attribute);
    this.element.removeAttribute("aria-busy");
    this.element.replaceChildren(...parts);
    if (value) [...this.element.querySelectorAll(active.tagName)].find((other) => other.getAttribute(attribute) === value)?.focus();
  }

  close() {
    this.#isClosed = true;
    clearInterval(this.#timer);
  }

  async again() {
    if (this.#asking) {
      this.#wantsMore = true;
      return;
    }
    this.#asking = true;
    let parts;
    try {
      parts = await this.#make();
    } catch (error) {
      parts = [el("p", { class: "notice" }, t("failed", { reason: String(error.message ?? error) }))];
    }
    if (!this.#isClosed) this.#show(parts.filter(Boolean));
    setTimeout(() => {
      this.#asking = false;
      if (this.#wantsMore && !this.#isClosed) {
        this.#wantsMore = false;
        this.again();
      }
    }, AGAIN_MS);
  }
}

function heads(...names) {
  return names.map((name) => t(`head.${name}`));
}

function nameOf(fault) {
  const ownName = currentLanguage() === "zh" ? fault.name_zh : fault.name;
  return ownName || fault.name || fault.name_zh || fault.summary || t("name.unknown");
}

function faultLink(node, subject, code) {
  return el("a", { href: link(["fault", node, subject, code]) }, code);
}

function lists(names) {
  return names.split(",").map((name) => word("list", name)).join(", ");
}

function jobLine(job) {
  return `${job.namespace}/${job.name || job.job}`;
}

function blindTable(blind) {
  if (blind === null) return section(t("blind"), el("p", { class: "empty" }, t("blind.unknown")));
  return table(t("blind"), heads("source", "part", "since", "reason"),
    blind.map((row) => [row.source, row.chip ?? t("whole.node"), since(row.since_ms), row.reason]), "blind.none");
}

function sentences(title, lines) {
  return lines.length ? section(title, el("ul", {}, lines.map((line) => el("li", {}, line)))) : null;
}

function nodeView([node]) {
  return new Asking(async () => {
    const page = await ask(`api/v1/nodes/${encodeURIComponent(node)}`);
    if (page === null) return [el("h2", {}, node), el("p", { class: "notice" }, t("node.gone"))];
    const status = page.node;
    const faults = [
      ...page.chips.flatMap((chip) => chip.faults.map((fault) => [chip.chip, fault])),
      ...page.switch_events.map((event) => [t("part.port", event), event]),
      ...page.server_faults.map((fault) => [fault.subject, { ...fault, published: fault.level, because: "" }]),
      ...page.dpu_faults.map((fault) => [fault.subject, { ...fault, published: fault.level }]),
    ];
    return [
      el("h2", {}, node),
      facts([
        [t("head.heartbeat"), word("heartbeat", status.heartbeat)],
        [t("heartbeat.since"), status.heartbeat_age_seconds === null ? t("unknown") : since(daemonNow() - status.heartbeat_age_seconds * 1000)],
        [t("head.document"), word("document", status.state)],
        [t("head.status.node"), status.node_status ?? t("status.none")],
        [t("head.status.switch"), status.switch_status ?? t("status.none")],
      ]),
      status.heartbeat_problem ? el("p", { class: "notice" }, status.heartbeat_problem) : null,
      sentences(t("because"), page.because),
      table(t("faults"), heads("part", "code", "name", "level", "since", "reported", "because"), faults.map(([part, fault]) => [
        part, faultLink(node, part, fault.code), nameOf(fault), fault.published ?? t("not.published"), since(fault.since_ms),
        fault.reported ?? "", fault.because ?? ""]), "faults.none"),
      table(t("public.faults"), heads("code", "name", "level", "since", "until", "source", "because"), page.public_faults.map((fault) => [
        fault.code, nameOf(fault), fault.level, since(fault.since_ms), fault.until_ms === null ? "" : moment(fault.until_ms), fault.resource, fault.because])),
      blindTable(status.blind),
      table(t("chips"), heads("chip", "published", "reported", "pods", "because"), page.chips.map((chip) => [
        chip.chip, lists(chip.published), lists(chip.reported), chip.pods.join(", "), chip.because.join(" ")])),
      table(t("jobs"), heads("job", "health", "since", "pods", "because"), page.jobs.map((job) => [
        jobLine(job), job.health, job.since_ms === null ? "" : since(job.since_ms), job.pods.join(", "), job.because.join(" ")])),
      table(t("documents"), heads("document", "state"), [
        ...Object.entries(page.documents).map(([name, isStored]) => [name, t(isStored ? "document.stored" : "document.waiting")]),
        ...status.stale.map((stale) => [stale.document, t("document.stale", { seconds: Math.round(stale.age_seconds) })]),
        ...status.missing.map((missing) => [missing.document, t("document.missing", { since: moment(missing.since_ms), store: missing.store })]),
        ...status.rejected.map((rejected) => [rejected.kind, t("document.rejected", { since: moment(rejected.since_ms), reason: rejected.reason })]),
      ]),
      section(t("agent.knows"), el("p", {}, t("agent.knows.text")), el("pre", {}, `vigil explain ${node}`)),
      await happenedTo({ node }),
    ];
  }, { concerns: (names) => names === null || names.has(node) });
}

/** Return the kind of a fault in the texts about levels. */
function textKind(fault) {
  if (fault.kind === "chip" && fault.fault_type === "PublicFault") return "public";
  if (fault.kind === "chip" && fault.fault_type === "CardNetworkUnhealthy") return "network";
  return ["chip", "switch", "dpu"].includes(fault.kind) ? fault.kind : "node";
}

function runbook(kind, level) {
  if (WITHOUT_RUNBOOK.includes(level) || !hasText(`effect.${kind}.${level}`)) return t("runbook.none");
  const name = kind === "network" ? "ChipNetwork" : `${RUNBOOK_KINDS[kind]}${level}`;
  return t("runbook.section", { name: `NpuVigil${name}` });
}

function faultView([node, subject, code]) {
  return new Asking(async () => {
    const page = await ask(`api/v1/faults?${new URLSearchParams({ node, code })}`);
    const held = (page?.faults ?? []).filter((fault) => fault.subject === subject);
    const title = el("h2", {}, el("a", { href: link(["node", node]) }, node), ` ${subject} ${code}`);
    const parts = held.map((fault) => {
      const kind = textKind(fault);
      return facts([
        [t("head.name.en"), fault.name ?? t("name.unknown")],
        [t("head.name.zh"), el("span", { lang: "zh-Hans" }, fault.name_zh ?? t("name.unknown"))],
        [t("head.summary"), fault.summary],
        [t("head.level"), fault.level || t("level.unknown")],
        [t("head.severity"), fault.severity ?? t("unknown")],
        [t("head.since"), since(fault.since_ms)],
        [t("head.received"), since(fault.received_at_ms)],
        [t("head.hidden"), fault.hidden === null ? t("no") : word("hidden", fault.hidden)],
        [t("head.effect"), word("effect", `${kind}.${fault.level}`)],
        [t("head.remedy"), word("remedy", `${kind}.${fault.level}`)],
        [t("head.runbook"), runbook(kind, fault.level)],
        [t("head.rule"), fault.rules.length
          ? el("ul", {}, fault.rules.map((rule) => el("li", {}, `${rule.file}, ${rule.key}, ${rule.line}: ${rule.text}`)))
          : t("rule.agent", { command: `vigil explain ${node}` })],
      ]);
    });
    return [title, ...(parts.length ? parts : [el("p", { class: "notice" }, t("fault.over"))]), await happenedTo({ node, code, part: subject })];
  }, { concerns: (names) => names === null || names.has(node) });
}

function jobsView() {
  return new Asking(async () => {
    const page = await ask("api/v1/jobs");
    const advice = await ask("api/v1/advice/outcomes");
    return [
      table(t("jobs.hit"), heads("job", "health", "since", "nodes", "faults"), page.jobs.map((job) => [
        jobLine(job), job.health, since(job.since_ms),
        el("span", {}, job.nodes.map((hit) => [el("a", { href: link(["node", hit.node]) }, hit.node), " "])),
        job.nodes.flatMap((hit) => hit.faults.map((fault) => `${hit.node} ${fault.device_type} ${fault.device_id} ${fault.code} ${fault.level}`)).join("; "),
      ]), "jobs.none"),
      section(t("advice"), el("p", {}, t(advice.enabled ? "advice.on" : "advice.off")),
        advice.enabled ? facts(Object.entries(advice.outcomes).map(([outcome, count]) => [outcome, String(count)])) : null,
        advice.enabled ? el("pre", {}, "vigil advise") : null),
    ];
  }, { concerns: () => true });
}

/** Return the rows of the history in one form: what is published, and changes of journals. */
function historyRows(events) {
  return events.map((row) => {
    if (row.published !== null)
      return { ...row, at: row.published.at_ms, part: row.published.subject, code: row.published.code, was: row.published.was, level: row.published.level, by: t("by.cluster") };
    if (row.event === null) return { ...row, at: row.received_at_ms, part: "", code: "", was: "", level: t("history.lost", { count: row.lost }), by: row.journal };
    const { subject } = row.event;
    return { ...row, at: row.event.at_ms, part: [subject.kind, subject.part, subject.id].filter((value) => value !== "").join(" "), code: row.event.code, was: row.event.old_level, level: row.event.new_level, by: t("by.agent") };
  });
}

function historyTable(title, rows) {
  return table(title, heads("time", "node", "part", "code", "was", "now", "by"), rows.reverse().map((row) => [
    moment(row.at), el("a", { href: link(["node", row.node]) }, row.node), row.part,
    row.code ? faultLink(row.node, row.part, row.code) : "", row.was ?? t("nothing"), row.level ?? t("over"), row.by]), "history.none");
}

/** Return what happened to a node or a fault; a journal names parts in other words. */
async function happenedTo({ node, code = "", part = "" }) {
  try {
    const page = await ask(`api/v1/history?${new URLSearchParams({ node, limit: String(LIMIT) })}`);
    const rows = historyRows(page.events).filter((row) =>
      (!code || row.code === code) && (isAgent || (row.published !== null && (!part || row.part === part))));
    return historyTable(t("timeline"), rows);
  } catch (error) {
    return section(t("timeline"), el("p", { class: "notice" }, t("failed", { reason: String(error.message ?? error) })));
  }
}

function timelineView(_, query) {
  const names = ["at", "node", "level", "code", "text"];
  const fields = Object.fromEntries(names.map((name) => [name, el("input", {
    type: name === "at" ? "datetime-local" : "search", value: query[name] ?? "", step: name === "at" ? "1" : null })]));
  const values = () => Object.fromEntries(names.map((name) => [name, fields[name].value]));
  const asked = new Asking(async () => {
    const { at, node, level, code, text } = values();
    const search = { limit: String(LIMIT) };
    if (node) search.node = node;
    const atMs = at ? new Date(at).getTime() : NaN;
    const parts = [];
    if (!Number.isNaN(atMs)) {
      search.since_ms = String(atMs);
      const then = await ask(`api/v1/published?${new URLSearchParams({ at_ms: String(atMs) })}`).catch((error) => ({ error }));
      if (then === null) parts.push(el("p", { class: "notice" }, t("at.agent")));
      else if (then.error) parts.push(el("p", { class: "notice" }, t("failed", { reason: then.error.message })));
      else {
        if (!then.is_recorded) parts.push(el("p", { class: "notice" }, then.recorded_since_ms === null ? t("at.unknown") : t("at.gap", { since: moment(then.recorded_since_ms) })));
        const rows = then.faults.filter((row) => (!node || row.node === node) && (!level || row.level === level) && (!code || row.code.includes(code)) && (!text || `${row.node} ${row.subject}`.includes(text)));
        parts.push(table(t("at.published", { at: moment(atMs) }), heads("node", "part", "code", "level"), rows.map((row) => [
          el("a", { href: link(["node", row.node]) }, row.node), row.subject, faultLink(row.node, row.subject, row.code), row.level]), "faults.none"));
      }
    }
    const page = await ask(`api/v1/history?${new URLSearchParams(search)}`);
    const rows = historyRows(page.events).filter((row) => (!level || row.level === level || row.was === level)
      && (!code || row.code.includes(code)) && (!text || `${row.node} ${row.part}`.includes(text)));
    parts.push(historyTable(t(Number.isNaN(atMs) ? "timeline" : "timeline.since", { at: moment(atMs) }), rows));
    return parts;
  }, { concerns: () => true });
  const form = el("form", { class: "filters", role: "search", "aria-label": t("filters"), submit: (event) => {
    event.preventDefault();
    history.replaceState(null, "", link(["timeline"], values()));
    asked.again();
  } }, names.map((name) => el("label", {}, t(`filter.${name}`), fields[name])), el("button", {}, t("show")));
  const answer = asked.element;
  return { element: el("div", {}, form, answer), update: (changed) => asked.update(changed), close: () => asked.close() };
}

function agentView() {
  return new Asking(async () => {
    const status = await ask("api/v1/status");
    const faults = await ask("api/v1/faults");
    return [
      el("h2", {}, status.node),
      sentences(t("not.ready"), status.not_ready),
      facts([
        [t("head.version"), status.version],
        [t("head.started"), since(status.started_at_ms)],
        [t("head.driver"), status.driver.trouble ?? [status.driver.chip_name, status.driver.version].filter(Boolean).join(", ")],
        [t("head.stuck"), status.driver.stuck_calls.join(", ") || t("none")],
        [t("head.heartbeat"), status.heartbeat.trouble ?? since(status.heartbeat.beaten_at_ms)],
      ]),
      table(t("faults"), heads("part", "code", "name", "level", "since", "rule"), faults.faults.map((fault) => [
        fault.subject, faultLink(fault.node, fault.subject, fault.code), nameOf(fault), fault.level, since(fault.since_ms),
        fault.rules.map((rule) => `${rule.file}, ${rule.key}, ${rule.line}`).join("; ")]), "faults.none"),
      blindTable(status.blind),
      table(t("documents"), heads("document", "state"), status.publications.map((row) => [
        row.document, row.trouble ?? row.conflict ?? (row.acknowledged_at_ms === null ? t("document.waiting") : t("document.acknowledged", { since: since(row.acknowledged_at_ms) }))])),
    ];
  }, { everyMs: POLL_MS });
}

export const views = { node: nodeView, fault: faultView, jobs: jobsView, timeline: timelineView };
export const agentViews = { agent: agentView, node: agentView, fault: faultView, timeline: timelineView };
