// The fleet as it was published at a time, from the history.

import { ask, el, moment, t } from "./dom.js";
import { weightsOf } from "./fleet.js";

function kindOf(subject) {
  if (/-\d+$/.test(subject)) return "chip";
  return subject.startsWith("switch") ? "switch" : "host";
}

/** Return the rows of that time, in the form of live ones, and what limits them; null without a time. */
export async function fleetAt(live, at) {
  const atMs = new Date(at).getTime();
  if (Number.isNaN(atMs)) return null;
  const then = await ask(`api/v1/published?${new URLSearchParams({ at_ms: String(atMs) })}`);
  const order = [...weightsOf(live.page).keys()];
  const worse = (one, other) => (order.indexOf(one) <= order.indexOf(other) ? one : other);
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
  const notices = [t("past", { at: moment(atMs) })];
  if (!then.is_recorded)
    notices.push(then.recorded_since_ms === null ? t("at.unknown") : t("at.gap", { since: moment(then.recorded_since_ms) }));
  return { page: live.page, rows, notices: notices.map((text) => el("p", { class: "notice" }, text)) };
}
