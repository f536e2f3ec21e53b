// Views of one node, one fault, the jobs that are hit and the timeline; and those of the agent.

import { ask, currentLanguage, daemonNow, el, facts, hasText, link, moment, renew, section, since, t, table, timeField, timeOf } from "./dom.js";
import { word } from "./fleet.js";

const POLL_MS = 5_000;
// Ages and what no event shows.
const REFRESH_MS = 60_000;
const AGAIN_MS = 1_000;
// A daemon gathers changes for a second before they are in its history.
const HISTORY_MS = 2_500;
const LIMIT = 1_000;
const RUNBOOK_KINDS = { chip: "Chip", network: "Chip", switch: "Switch", node: "Server", public: "Public", dpu: "Dpu" };
const about = document.documentElement.dataset;
const isAgent = about.daemon === "agent";
const WITHOUT_RUNBOOK = ["NotHandleFault", "NotHandle"];

/**
 * A view of an answer of the daemon. It asks again when nodes changed that it `concerns`, when it
 * `hears` an event, and every `everyMs`. One that `hasHistory` asks each time once more a little
 * later, also when it is opened: the last changes may not be stored yet.
 */
export class Asking {
  #make;
  #concerns;
  #hears;
  #hasHistory;
  #late = 0;
  #asking = false;
  #wantsMore = false;
  #timer = 0;
  #isClosed = false;

  constructor(make, { concerns = () => false, hears = () => false, hasHistory = false, everyMs = 0 } = {}) {
    this.#make = make;
    this.#concerns = concerns;
    this.#hears = hears;
    this.#hasHistory = hasHistory;
    this.element = el("div", { "aria-busy": "true" }, el("p", {}, t("loading")));
    this.#changed();
    if (everyMs) this.#timer = setInterval(() => document.hidden || this.again(), everyMs);
  }

  update(names) {
    if (this.#concerns(names)) this.#changed();
  }

  event(kind, change) {
    if (this.#hears(kind, change)) this.#changed();
  }

  #changed() {
    this.again();
    if (!this.#hasHistory || this.#late) return;
    this.#late = setTimeout(() => {
      this.#late = 0;
      this.again();
    }, HISTORY_MS);
  }

  #show(parts) {
    this.element.removeAttribute("aria-busy");
    renew(this.element, parts);
  }

  close() {
    this.#isClosed = true;
    clearInterval(this.#timer);
    clearTimeout(this.#late);
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

/** Return the heads of a table. */
export function heads(...names) {
  return names.map((name) => t(`head.${name}`));
}

/** Return what a fault is called in the language of the page. */
export function nameOf(fault) {
  const ownName = currentLanguage() === "zh" ? fault.name_zh : fault.name;
  return ownName || fault.name || fault.name_zh || fault.summary || t("name.unknown");
}

/** Return a link to a node, now or at a time. */
export function nodeLink(node, at) {
  return el("a", { href: link(["node", node], { at }) }, node);
}

/** Return a link to a fault, now or at a time. */
export function faultLink(node, subject, code, at) {
  return el("a", { href: link(["fault", node, subject, code], { at }) }, code);
}

/** Return where the page of a node's agent is, or how to reach it; this page never asks there. */
function agentPage(node) {
  if (!about.agentUrl) return el("p", {}, t("agent.reach"));
  const href = about.agentUrl.replaceAll("{node}", encodeURIComponent(node));
  return el("p", {}, el("a", { href, rel: "noreferrer", target: "_blank" }, t("agent.page", { node })));
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
    blind, (row) => [row.source, row.chip ?? t("whole.node"), since(row.since_ms), row.reason], "blind.none");
}

/** Return sentences below a heading, null where there is none. */
function sentences(title, lines) {
  return lines.length ? section(title, el("ul", {}, lines.map((line) => el("li", {}, line)))) : null;
}

function nodeView([node], _, live) {
  return new Asking(async () => {
    const page = await ask(`api/v1/nodes/${encodeURIComponent(node)}`);
    if (page === null) return [el("h2", {}, node), el("p", { class: "notice" }, t("node.gone"))];
    const status = page.node;
    const { documents } = await ask("api/v1/documents");
    // The leader writes cluster documents; another program that does so as well is named there.
    const writers = (name) => [live.page?.holder || t("no.leader"),
      ...documents.filter((row) => row.document === name && row.conflict_writer).map((row) => row.conflict_writer)].join(", ");
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
      table(t("faults"), heads("part", "code", "name", "level", "since", "reported", "because"), faults, ([part, fault]) => [
        part, faultLink(node, part, fault.code), nameOf(fault), fault.published ?? t("not.published"), since(fault.since_ms),
        fault.reported ?? "", fault.because ?? ""], "faults.none"),
      table(t("public.faults"), heads("code", "name", "level", "since", "until", "source", "because"), page.public_faults, (fault) => [
        fault.code, nameOf(fault), fault.level, since(fault.since_ms), fault.until_ms === null ? "" : moment(fault.until_ms), fault.resource, fault.because]),
      blindTable(status.blind),
      table(t("chips"), heads("chip", "published", "reported", "pods", "because"), page.chips, (chip) => [
        chip.chip, lists(chip.published), lists(chip.reported), chip.pods.join(", "), chip.because.join(" ")]),
      table(t("jobs"), heads("job", "health", "since", "pods", "because"), page.jobs, (job) => [
        jobLine(job), job.health, job.since_ms === null ? "" : since(job.since_ms), job.pods.join(", "), job.because.join(" ")]),
      table(t("documents"), heads("document", "state", "writer"), [
        ...Object.entries(page.documents).map(([name, isStored]) => [name, t(isStored ? "document.stored" : "document.waiting"), writers(name)]),
        ...status.stale.map((stale) => [stale.document, t("document.stale", { seconds: Math.round(stale.age_seconds) }), node]),
        ...status.missing.map((missing) => [missing.document, t("document.missing", { since: moment(missing.since_ms), store: missing.store }), node]),
        ...status.rejected.map((rejected) => [rejected.kind, t("document.rejected", { since: moment(rejected.since_ms), reason: rejected.reason }), node]),
      ], (row) => row),
      section(t("agent.knows"), el("p", {}, t("agent.knows.text")), agentPage(node), el("pre", {}, `vigil explain ${node}`)),
      await happenedTo({ node }),
    ];
  }, { hasHistory: true, everyMs: REFRESH_MS, concerns: (names) => names === null || names.has(node), hears: (kind, change) => kind === "job" && change.nodes.includes(node) });
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
    const title = el("h2", {}, nodeLink(node), ` ${subject} ${code}`);
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
          : el("div", {}, t("rule.agent", { command: `vigil explain ${node}` }), isAgent ? null : agentPage(node))],
      ]);
    });
    return [title, ...(parts.length ? parts : [el("p", { class: "notice" }, t("fault.over"))]), await happenedTo({ node, code, part: subject })];
  }, { hasHistory: true, everyMs: REFRESH_MS, concerns: (names) => names === null || names.has(node) });
}

function jobsView() {
  return new Asking(async () => {
    const page = await ask("api/v1/jobs");
    return [
      table(t("jobs.hit"), heads("job", "health", "since", "nodes", "faults"), page.jobs, (job) => [
        jobLine(job), job.health, since(job.since_ms),
        el("span", {}, job.nodes.map((hit) => [nodeLink(hit.node), " "])),
        job.nodes.flatMap((hit) => hit.faults.map((fault) => `${hit.node} ${fault.device_type} ${fault.device_id} ${fault.code} ${fault.level}`)).join("; "),
      ], "jobs.none"),
      ...adviceParts(await ask("api/v1/advice")),
    ];
  }, { everyMs: REFRESH_MS, concerns: (names) => names === null, hears: (kind) => kind === "job" || kind === "advice" });
}

/** Return what the scheduler will do, and what it did otherwise than foretold. */
function adviceParts({ enabled, advice }) {
  if (!enabled) return [section(t("advice"), el("p", {}, t("advice.off")))];
  const isComputed = advice.advised_at_ms > 0;
  return [
    section(t("advice"),
      el("p", {}, isComputed ? t("advice.on", { since: since(advice.advised_at_ms) }) : t("advice.none")),
      el("ul", {}, Object.entries(advice.not_known).map(([kind, reason]) => el("li", {}, t("advice.unknown", { kind, reason })))),
      el("pre", {}, "vigil advise")),
    ...advice.reports.map((report) =>
      table(t("advice.profile", { profile: report.profile }), heads("job", "action", "pods", "pods.others", "nodes", "because"), report.decisions, (decision) => [
        decision.job, word("action", decision.action),
        decision.pods.map((pod) => t("pod.grace", { pod: pod.name, seconds: pod.grace_seconds })).join(", "),
        decision.also_deleted.map((pod) => pod.name).join(", "),
        el("span", {}, [...new Set(decision.fault_pods.map((pod) => pod.node))].map((node) => [nodeLink(node), " "])),
        [decision.why, decision.follow_up, decision.gap].filter(Boolean).join("; "),
      ], "advice.nothing")),
    section(t("outcomes"), facts(Object.entries(advice.outcomes).map(([outcome, count]) => [word("outcome", outcome), String(count)]))),
    table(t("outcomes.missed"), heads("time", "job", "pod", "outcome", "because"), advice.missed.toReversed(), (missed) => [
      moment(missed.at_ms), missed.job, missed.pod, word("outcome", missed.outcome), missed.why], "outcomes.none"),
  ];
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
  return table(title, heads("time", "node", "part", "code", "was", "now", "by"), rows.toReversed(), (row) => [
    moment(row.at), nodeLink(row.node), row.part,
    row.code ? faultLink(row.node, row.part, row.code) : "", row.was ?? t("nothing"), row.level ?? t("over"), row.by], "history.none");
}

/** Return what happened to a node or a fault, since a time if given; a journal names parts in other words. */
export async function happenedTo({ node, code = "", part = "", sinceMs = null }) {
  const title = sinceMs === null ? t("timeline") : t("timeline.since", { at: moment(sinceMs) });
  const asked = { node, limit: String(LIMIT), ...(sinceMs === null ? {} : { since_ms: String(sinceMs) }) };
  try {
    const page = await ask(`api/v1/history?${new URLSearchParams(asked)}`);
    const rows = historyRows(page.events).filter((row) =>
      (!code || row.code === code) && (isAgent || (row.published !== null && (!part || row.part === part))));
    return historyTable(title, rows);
  } catch (error) {
    return section(title, el("p", { class: "notice" }, t("failed", { reason: String(error.message ?? error) })));
  }
}

/** Return what was published at a time, as a table. */
export function publishedTable(faults, at) {
  return table(t("at.published", { at: moment(timeOf(at)) }), heads("node", "part", "code", "level"), faults, (row) => [
    nodeLink(row.node, at), row.subject, faultLink(row.node, row.subject, row.code, at), row.level], "past.none");
}

/** Return what limits an answer about a time. */
export function pastNotices(then) {
  const since = then.recorded_since_ms;
  const text = since === null ? t("at.unknown") : t(then.is_recorded ? "at.since" : "at.gap", { since: moment(since) });
  return el("p", { class: then.is_recorded ? "hint" : "notice" }, text);
}

function timelineView(_, query) {
  const names = ["node", "level", "code", "text"];
  const fields = Object.fromEntries(names.map((name) => [name, el("input", { type: "search", value: query[name] ?? "" })]));
  let at = query.at ?? "";
  const values = () => ({ at, ...Object.fromEntries(names.map((name) => [name, fields[name].value])) });
  const asked = new Asking(async () => {
    const { node, level, code, text } = values();
    const search = { limit: String(LIMIT), ...(node ? { node } : {}) };
    const atMs = timeOf(at);
    const parts = [];
    if (!Number.isNaN(atMs)) {
      search.since_ms = String(atMs);
      const then = await ask(`api/v1/published?${new URLSearchParams({ at_ms: String(atMs), ...(node ? { node } : {}) })}`).catch((error) => ({ error }));
      if (then === null) parts.push(el("p", { class: "notice" }, t("at.agent")));
      else if (then.error) parts.push(el("p", { class: "notice" }, t("failed", { reason: then.error.message })));
      else {
        const rows = then.faults.filter((row) => (!level || row.level === level) && (!code || row.code.includes(code)) && (!text || `${row.node} ${row.subject}`.includes(text)));
        parts.push(pastNotices(then), publishedTable(rows, at));
      }
    }
    const page = await ask(`api/v1/history?${new URLSearchParams(search)}`);
    const rows = historyRows(page.events).filter((row) => (!level || row.level === level || row.was === level)
      && (!code || row.code.includes(code)) && (!text || `${row.node} ${row.part}`.includes(text)));
    parts.push(historyTable(Number.isNaN(atMs) ? t("timeline") : t("timeline.since", { at: moment(atMs) }), rows));
    return parts;
  }, { hasHistory: true, everyMs: REFRESH_MS, concerns: () => true });
  const form = el("form", { class: "filters", role: "search", "aria-label": t("filters"), submit: (event) => {
    event.preventDefault();
    history.replaceState(null, "", link(["timeline"], values()));
    asked.again();
  } }, el("label", {}, t("filter.at"), timeField(at, (chosen) => { at = chosen; })),
    names.map((name) => el("label", {}, t(`filter.${name}`), fields[name])), el("button", {}, t("show")));
  return { element: el("div", {}, form, asked.element), update: (changed) => asked.update(changed), close: () => asked.close() };
}

function agentView() {
  return new Asking(async () => {
    const status = await ask("api/v1/status");
    const faults = await ask("api/v1/faults");
    return [
      status.version === about.version ? null
        : el("p", { class: "notice" }, t("version", { page: about.version, daemon: status.version })),
      el("h2", {}, status.node),
      sentences(t("not.ready"), status.not_ready),
      facts([
        [t("head.version"), status.version],
        [t("head.started"), since(status.started_at_ms)],
        [t("head.driver"), status.driver.trouble ?? [status.driver.chip_name, status.driver.version].filter(Boolean).join(", ")],
        [t("head.stuck"), status.driver.stuck_calls.join(", ") || t("none")],
        [t("head.heartbeat"), status.heartbeat.trouble ?? since(status.heartbeat.beaten_at_ms)],
      ]),
      table(t("faults"), heads("part", "code", "name", "level", "since", "rule"), faults.faults, (fault) => [
        fault.subject, faultLink(fault.node, fault.subject, fault.code), nameOf(fault), fault.level, since(fault.since_ms),
        fault.rules.map((rule) => `${rule.file}, ${rule.key}, ${rule.line}`).join("; ")], "faults.none"),
      blindTable(status.blind),
      table(t("chips"), heads("chip", "level", "link"), status.chips, (chip) => [
        chip.device, chip.level, chip.link_up === null ? t("unknown") : t(chip.link_up ? "link.up" : "link.down")]),
      table(t("documents"), heads("document", "state"), status.publications, (row) => [
        row.document, row.trouble ?? row.conflict ?? (row.acknowledged_at_ms === null ? t("document.waiting") : t("document.acknowledged", { since: since(row.acknowledged_at_ms) }))]),
    ];
  }, { everyMs: POLL_MS });
}

export const views = { node: nodeView, fault: faultView, jobs: jobsView, timeline: timelineView };
export const agentViews = { agent: agentView, node: agentView, fault: faultView, timeline: timelineView };
