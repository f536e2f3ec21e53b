// The views at a time: what was published then, from the history.

import { ask, el, facts, link, moment, t, table, timeOf } from "./dom.js";
import { Asking, faultLink, happenedTo, heads, nameOf, nodeLink, pastNotices, publishedTable } from "./details.js";
import { FleetView, weightsOf } from "./fleet.js";

const DAY_MS = 86_400_000;

function kindOf(subject) {
  if (/-\d+$/.test(subject)) return "chip";
  return ["switch", "storage"].find((kind) => subject.startsWith(kind)) ?? "host";
}

/** Return the rows of nodes at that time, in the form of live ones. */
function rowsOf(live, then) {
  const order = [...weightsOf(live.page).keys()];
  const worse = (level, other) => (order.indexOf(level) <= order.indexOf(other) ? level : other);
  // Which nodes there were then is not recorded, nor heartbeats and blind sources.
  const rows = new Map([...live.rows].map(([name, node]) => [name,
    { node: name, chips: node.chips, super_pod: node.super_pod, rack: node.rack }]));
  const chips = new Map();
  for (const { node, subject, code, level } of then.faults) {
    if (!rows.has(node)) rows.set(node, { node });
    const row = rows.get(node);
    row.level = row.level ? worse(level, row.level) : level;
    row.kinds = [...new Set([...(row.kinds ?? []), kindOf(subject)])];
    if (code !== "status") row.codes = [...new Set([...(row.codes ?? []), code])];
    if (kindOf(subject) === "chip") {
      const key = `${node}/${subject}`;
      chips.set(key, { node, level: chips.has(key) ? worse(level, chips.get(key).level) : level });
    }
  }
  for (const { node, level } of chips.values()) {
    const row = rows.get(node);
    row.levels = { ...row.levels, [level]: (row.levels?.[level] ?? 0) + 1 };
  }
  return rows;
}

/** Return a view of what was published; `make` returns its parts. */
function viewOf(path, query, node, make) {
  return new Asking(async () => {
    const asked = { at_ms: String(timeOf(query.at)), ...(node ? { node } : {}) };
    const then = await ask(`api/v1/published?${new URLSearchParams(asked)}`);
    return [
      el("p", { class: "notice" }, t("past", { at: moment(then.at_ms) }), " ",
        el("a", { href: link(path, { ...query, at: "" }) }, t("past.now"))),
      pastNotices(then),
      ...(await make(then)),
    ];
  });
}

function fleetThen(_, query, live, go) {
  return viewOf(["fleet"], query, "", (then) =>
    [new FleetView({ page: live.page, rows: rowsOf(live, then) }, query, go).element]);
}

function nodeThen([node], query) {
  return viewOf(["node", node], query, node, async (then) => [
    el("h2", {}, node),
    table(t("faults"), heads("part", "code", "name", "level"), then.faults, (fault) => [
      fault.subject, faultLink(node, fault.subject, fault.code, query.at), nameOf(then.names[fault.code] ?? {}), fault.level], "past.none"),
    await happenedTo({ node, sinceMs: then.at_ms - DAY_MS }),
  ]);
}

function faultThen([node, subject, code], query) {
  return viewOf(["fault", node, subject, code], query, node, async (then) => {
    const held = then.faults.find((fault) => fault.subject === subject && fault.code === code);
    const names = then.names[code] ?? {};
    return [
      el("h2", {}, nodeLink(node, query.at), ` ${subject} ${code}`),
      held ? facts([
        [t("head.name.en"), names.name ?? t("name.unknown")],
        [t("head.name.zh"), el("span", { lang: "zh-Hans" }, names.name_zh ?? t("name.unknown"))],
        [t("head.summary"), names.summary ?? t("name.unknown")],
        [t("head.level"), held.level],
      ]) : el("p", { class: "notice" }, t("past.fault.none")),
      await happenedTo({ node, code, part: subject, sinceMs: then.at_ms - DAY_MS }),
    ];
  });
}

function jobsThen(_, query) {
  return viewOf(["jobs"], query, "", (then) =>
    [el("p", { class: "notice" }, t("past.jobs")), publishedTable(then.faults, query.at)]);
}

export const views = { fleet: fleetThen, node: nodeThen, fault: faultThen, jobs: jobsThen };
