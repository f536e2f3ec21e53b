// The fleet: figures, filters, a map of all nodes, and the same nodes as a sorted list.

import { el, facts, hasText, link, renew, section, t, table, timeField } from "./dom.js";

const MAX_GROUPED_BY_PREFIX = 200;
const MAX_CODES = 4;
const SIGNS = { lost: "⊘", out: "✕", no_new_pods: "▲", silent: "…", sub_health: "◆", blind: "?", unknown: "–", none: "•", healthy: "" };
const STATES = Object.keys(SIGNS);
const WORSE = new Map(STATES.map((state, place) => [state, place]));
const OF_WEIGHT = { 3: "out", 2: "no_new_pods", 1: "sub_health", 0: "none" };
const KINDS = ["chip", "switch", "host", "storage", "dpu"];

/** Return the state of a node that its sign shows; `weights` are by level. */
function stateOf(node, weights) {
  if (node.heartbeat === "lost") return "lost";
  const level = node.level ? OF_WEIGHT[weights.get(node.level) ?? 2] : "healthy";
  const others = [
    node.heartbeat === "silent" ? "silent" : null,
    node.blind ? "blind" : null,
    node.heartbeat === "unknown" || node.blind === null ? "unknown" : null,
    level,
  ].filter(Boolean);
  return others.reduce((worst, state) => (WORSE.get(state) < WORSE.get(worst) ? state : worst), "healthy");
}

/** Return the name of a state or a word of the daemon, as it is where the catalogue lacks it. */
export function word(prefix, name) {
  return hasText(`${prefix}.${name}`) ? t(`${prefix}.${name}`) : name;
}

/** Return the levels of a page in order, each with its weight. */
export function weightsOf(page) {
  return new Map((page?.levels ?? []).map((row) => [row.level, row.weight]));
}

/** Put `elements` below `parent` in this order; what is in its place already is not touched. */
function place(parent, elements) {
  const wanted = new Set(elements);
  for (const child of [...parent.childNodes]) if (!wanted.has(child)) child.remove();
  let next = parent.firstChild;
  for (const element of elements) {
    if (next !== null && next !== element && next.nextSibling === element) next = element;
    if (next === element) next = element.nextSibling;
    else parent.insertBefore(element, next);
  }
}

function groupOf(node, isLarge) {
  if (node.super_pod !== undefined) return t("group.super_pod", { id: node.super_pod });
  if (node.rack !== undefined) return t("group.rack", { id: node.rack });
  // A browser lays out only the groups that it shows, so none is large.
  const name = isLarge ? node.node.replace(/\d{1,2}$/, "") : node.node.replace(/\d+$/, "");
  return t("group.name", { name: name || node.node });
}

function describe(node, state) {
  const chips = Object.entries(node.levels ?? {}).map(([level, count]) => `${count} ${level}`);
  const parts = [node.node, t(`state.${state}`), node.level ?? "", ...chips];
  if (node.blind) parts.push(t("blind.count", { count: node.blind }));
  return parts.filter(Boolean).join(", ");
}

/** The view of all nodes; `go` opens an address of the page. */
export class FleetView {
  #live;
  #go;
  #query;
  #cells = new Map();
  #groups = new Map();
  #active = "";
  #fields = {};
  #made = 0;
  #derived = new WeakMap();

  constructor(live, query, go) {
    this.#live = live;
    this.#query = query;
    this.#go = go;
    this.figures = el("div", { class: "figures" });
    this.map = el("div", {
      class: "map", role: "listbox", tabindex: "0", id: "map",
      "aria-label": t("map"), "aria-describedby": "map-help",
      keydown: (event) => this.#key(event),
      click: (event) => this.#click(event),
      focus: () => this.#activate(this.#active || this.#order()[0]),
    });
    this.list = el("div");
    this.leader = el("p", { class: "hint" });
    this.element = el("div", {},
      this.figures, this.#filters(),
      section(t("map"), el("p", { id: "map-help", class: "hint" }, t("map.help")), this.#legend(), this.map),
      this.list, this.leader);
    this.update(null);
  }

  #legend() {
    return el("ul", { class: "legend" }, STATES.map((state) =>
      el("li", {}, el("span", { class: "cell", "data-state": state, "aria-hidden": "true" }, SIGNS[state]), t(`state.${state}`))));
  }

  #filters() {
    const changed = () => this.#filtered();
    const select = (name, values) => el("select", { change: changed },
      el("option", { value: "" }, t("all")),
      values.map((value) => el("option", { value, selected: this.#query[name] === value }, word("kind", value))));
    const input = (name) => el("input", { type: "search", value: this.#query[name] ?? "", input: changed });
    const levels = [...weightsOf(this.#live.page).keys()];
    this.#fields = { level: select("level", levels), kind: select("kind", KINDS), code: input("code"), text: input("text") };
    return el("form", { class: "filters", role: "search", "aria-label": t("filters"), submit: (event) => event.preventDefault() },
      Object.entries(this.#fields).map(([name, field]) => el("label", {}, t(`filter.${name}`), field)),
      el("label", {}, t("filter.at"), timeField(this.#query.at, (at) => this.#go(link(["fleet"], { ...this.#query, at })))));
  }

  #filtered() {
    this.#query = Object.fromEntries(Object.entries(this.#fields).map(([name, field]) => [name, field.value]).concat([["at", this.#query.at ?? ""]]));
    // The address is that of what is shown, and "back" leaves the view.
    history.replaceState(null, "", link(["fleet"], this.#query));
    this.update(null);
  }

  #matches(node) {
    const { level, kind, code, text } = this.#query;
    return (!level || node.level === level || level in (node.levels ?? {}))
      && (!kind || (node.kinds ?? []).includes(kind))
      && (!code || (node.codes ?? []).some((name) => name.toLowerCase().includes(code.toLowerCase())))
      && (!text || node.node.toLowerCase().includes(text.toLowerCase()));
  }

  /** Show the rows as they are now. */
  update(changed) {
    const page = this.#live.page;
    if (page === null) return;
    const weights = weightsOf(page);
    const rank = new Map([...weights.keys()].map((level, place) => [level, place]));
    const isLarge = this.#live.rows.size > MAX_GROUPED_BY_PREFIX;
    const rows = [...this.#live.rows.values()].filter((node) => this.#matches(node)).map((node) => {
      // What follows from a row that stays is not computed for each change of another one.
      let row = this.#derived.get(node);
      if (row === undefined || row.isLarge !== isLarge) {
        row = { node, state: stateOf(node, weights), isLarge, group: groupOf(node, isLarge),
          rank: node.level ? (rank.get(node.level) ?? rank.size) : rank.size + 1 };
        this.#derived.set(node, row);
      }
      return row;
    });
    // The rows come in the order of names, and the sort is stable.
    rows.sort((a, b) => WORSE.get(a.state) - WORSE.get(b.state) || a.rank - b.rank);
    this.#showFigures(weights);
    this.leader.textContent = t("leader", { role: page.role, holder: page.holder || t("no.leader") });
    this.#showMap(rows, changed);
    this.#showList(rows);
  }

  #showFigures(weights) {
    const nodes = [...this.#live.rows.values()];
    const chips = {};
    let all = 0;
    for (const node of nodes) {
      all += node.chips ?? 0;
      for (const [level, count] of Object.entries(node.levels ?? {})) chips[level] = (chips[level] ?? 0) + count;
    }
    const order = [...weights.keys()];
    const levels = Object.keys(chips).sort((a, b) => order.indexOf(a) - order.indexOf(b));
    const count = (test) => String(nodes.filter(test).length);
    this.figures.replaceChildren(facts([
      [t("figure.nodes"), String(nodes.length)],
      [t("figure.nodes.faulty"), count((node) => node.level)],
      [t("figure.lost"), count((node) => node.heartbeat === "lost")],
      [t("figure.silent"), count((node) => node.heartbeat === "silent")],
      [t("figure.blind"), count((node) => node.blind)],
      [t("figure.unknown"), count((node) => node.blind === null || node.heartbeat === "unknown")],
      [t("figure.chips"), String(all)],
      ...levels.map((level) => [t("figure.chips.at", { level }),
        el("a", { href: link(["fleet"], { level, at: this.#query.at }) }, String(chips[level]))]),
    ]));
  }

  #showMap(rows, changed) {
    const groups = new Map();
    for (const row of rows) {
      const name = row.group;
      if (!groups.has(name)) groups.set(name, []);
      groups.get(name).push(row);
    }
    const names = new Set(rows.map((row) => row.node.node));
    for (const name of this.#cells.keys()) if (!names.has(name)) this.#cells.delete(name);
    const boxes = [];
    for (const [name, members] of groups) {
      const signature = members.map((row) => row.node.node).join("\n");
      let group = this.#groups.get(name);
      if (group === undefined) {
        const cells = el("div", { class: "cells", role: "presentation" });
        group = { box: el("div", { class: "group", role: "group", "aria-label": name },
          el("h3", { "aria-hidden": "true" }, name), cells), cells, signature: "" };
        this.#groups.set(name, group);
      }
      for (const { node, state } of members) this.#showCell(node, state, changed);
      if (group.signature !== signature) {
        place(group.cells, members.map((row) => this.#cells.get(row.node.node)));
        group.signature = signature;
      }
      boxes.push(group.box);
    }
    for (const name of this.#groups.keys()) if (!groups.has(name)) this.#groups.delete(name);
    if (rows.length === 0) boxes.push(el("p", { class: "empty" }, t("fleet.empty")));
    place(this.map, boxes);
    if (!this.#cells.has(this.#active)) this.#activate("");
  }

  #showCell(node, state, changed) {
    let cell = this.#cells.get(node.node);
    if (cell !== undefined && changed !== null && !changed.has(node.node)) return;
    const label = describe(node, state);
    if (cell === undefined) {
      cell = el("div", { class: "cell", role: "option", "aria-selected": "false", "data-node": node.node, id: `cell-${(this.#made += 1)}` });
      this.#cells.set(node.node, cell);
    }
    if (cell.dataset.state !== state) {
      cell.dataset.state = state;
      cell.textContent = SIGNS[state];
    }
    if (cell.getAttribute("aria-label") !== label) {
      cell.setAttribute("aria-label", label);
      cell.title = label;
    }
  }

  #order() {
    return [...this.map.querySelectorAll("[data-node]")].map((cell) => cell.dataset.node);
  }

  #activate(name) {
    const before = this.#cells.get(this.#active);
    if (before !== undefined) before.setAttribute("aria-selected", "false");
    this.#active = name ?? "";
    const cell = this.#cells.get(this.#active);
    if (cell === undefined) {
      this.map.removeAttribute("aria-activedescendant");
      return;
    }
    cell.setAttribute("aria-selected", "true");
    this.map.setAttribute("aria-activedescendant", cell.id);
    cell.scrollIntoView({ block: "nearest" });
  }

  #key(event) {
    const order = this.#order();
    if (order.length === 0) return;
    const place = Math.max(0, order.indexOf(this.#active));
    const steps = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: this.#perLine(), ArrowUp: -this.#perLine() };
    let next = place;
    if (event.key in steps) next = place + steps[event.key];
    else if (event.key === "Home") next = 0;
    else if (event.key === "End") next = order.length - 1;
    else if (event.key === "Enter" || event.key === " ") {
      if (this.#active) this.#go(this.#address(this.#active));
      event.preventDefault();
      return;
    } else return;
    event.preventDefault();
    this.#activate(order[Math.min(Math.max(next, 0), order.length - 1)]);
  }

  #perLine() {
    const cell = this.#cells.get(this.#active);
    const line = cell?.parentElement;
    if (!line) return 1;
    return Math.max(1, [...line.children].filter((other) => other.offsetTop === cell.offsetTop).length);
  }

  #click(event) {
    const name = event.target.closest?.("[data-node]")?.dataset.node;
    if (name !== undefined) this.#go(this.#address(name));
  }

  #address(name) {
    return link(["node", name], { at: this.#query.at });
  }

  #showList(rows) {
    const heads = ["node", "state", "level", "chips", "codes", "blind", "heartbeat", "super_pod", "rack"].map((name) => t(`head.${name}`));
    const unhealthy = rows.filter((row) => row.state !== "healthy");
    const list = table(t("list", { count: unhealthy.length }), heads, unhealthy, ({ node, state }) => [
      el("a", { href: this.#address(node.node) }, node.node),
      `${SIGNS[state]} ${t(`state.${state}`)}`,
      node.level ?? "",
      Object.entries(node.levels ?? {}).map(([level, count]) => `${count} ${level}`).join(", "),
      [...(node.codes ?? []).slice(0, MAX_CODES), ...((node.codes ?? []).length > MAX_CODES ? ["…"] : [])].join(" "),
      node.blind === null ? t("unknown") : String(node.blind ?? 0),
      word("heartbeat", node.heartbeat ?? "alive"),
      String(node.super_pod ?? ""),
      String(node.rack ?? ""),
    ], "list.empty");
    renew(this.list, [list]);
  }
}
