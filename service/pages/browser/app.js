// The page: addresses of its views, what is at the top, and what is announced.

import { choice, clockOffset, currentLanguage, el, link, loadTexts, moment, setClockOffset, t, timeOf } from "./dom.js";
import { FleetView } from "./fleet.js";
import { Rows } from "./live.js";

const ANNOUNCE_MS = 10_000;
const DRAW_MS = 100;
const TOP_MS = 5_000;
const OLD_MS = 60_000;
const WRONG_CLOCK_MS = 120_000;
const about = document.documentElement.dataset;
const root = document.getElementById("page");
const isAgent = about.daemon === "agent";

let view = null;
let main = null;
let noticeArea = null;
let spoken = null;
let changedNames = new Set();
let isAllChanged = false;
let drawing = 0;
let drawnAt = 0;
let announced = new Set();
let failure = "";
let shows = 0;

const live = new Rows(changed, happened);

function changed(names) {
  setClockOffset(live.clockOffsetMs);
  if (names === null) isAllChanged = true;
  else for (const name of names) {
    changedNames.add(name);
    announced.add(name);
  }
  drawing ||= setTimeout(draw, Math.max(0, drawnAt + DRAW_MS - Date.now()));
}

function happened(kind, change) {
  view?.event?.(kind, change);
}

function draw() {
  drawing = 0;
  drawnAt = Date.now();
  const names = isAllChanged ? null : changedNames;
  isAllChanged = false;
  changedNames = new Set();
  if (view === null) show();
  else view.update(names);
  drawTop();
}

function route() {
  const [path, search] = location.hash.replace(/^#\/?/, "").split("?", 2);
  const parts = path.split("/").map((part) => {
    try {
      return decodeURIComponent(part);
    } catch {
      return part;
    }
  });
  return { name: parts[0] || (isAgent ? "agent" : "fleet"), parts: parts.slice(1), query: Object.fromEntries(new URLSearchParams(search ?? "")) };
}

async function show() {
  const { name, parts, query } = route();
  const go = (address) => { location.hash = address; };
  const turn = (shows += 1);
  const isFleet = name === "fleet" && !isAgent;
  // The fleet of a time has the nodes and groups of now.
  if (isFleet && live.page === null) return;
  const isPast = !isAgent && name !== "timeline" && !Number.isNaN(timeOf(query.at));
  let next;
  if (isFleet && !isPast) next = new FleetView(live, query, go);
  else {
    const file = await import(isPast ? "./past.js" : "./details.js").catch(() => null);
    if (file === null) {
      // A daemon of another release has other files.
      failure = t("files.gone");
      drawTop();
      return;
    }
    next = (isAgent ? file.agentViews : file.views)[name]?.(parts, query, live, go);
  }
  // Another address may have been opened while files were loaded.
  if (turn === shows) set(next ?? { element: el("p", {}, t("view.unknown")), update() {} }, name, query.at);
  else next?.close?.();
}

function set(next, name, at) {
  view?.close?.();
  view = next;
  main.replaceChildren(view.element);
  const places = isAgent ? ["agent", "timeline"] : ["fleet", "jobs", "timeline"];
  document.title = t("title.view", { view: t(`view.${name}`) });
  document.querySelector("nav").replaceChildren(...places.map((place) =>
    el("a", { href: link([place], { at }), "aria-current": place === name ? "page" : null }, t(`view.${place}`))));
}

function notices() {
  const page = live.page;
  const rows = [];
  if (failure) rows.push(failure);
  if (isAgent) return rows;
  if (live.mode === "polling") rows.push(t(`polling.${live.reason}`));
  if (live.mode === "starting") rows.push(t("starting"));
  if (live.mode === "away") rows.push(t("away", { reason: live.reason }));
  if (live.answeredAt && Date.now() - live.answeredAt > OLD_MS) rows.push(t("old", { since: moment(live.answeredAt + clockOffset()) }));
  if (page === null) return rows.length ? rows : [t("connecting")];
  if (!page.leads) rows.push(t("follower", { role: page.role, holder: page.holder || t("no.leader") }));
  if (page.alarm) rows.push(t("alarm"));
  for (const away of page.stores_away) rows.push(t("store.away", away));
  if (page.version !== about.version) rows.push(t("version", { page: about.version, daemon: page.version }));
  if (Math.abs(clockOffset()) > WRONG_CLOCK_MS) rows.push(t("clock", { minutes: Math.round(clockOffset() / 60_000) }));
  return rows;
}

function drawTop() {
  const rows = notices();
  const shown = [...noticeArea.children].map((child) => child.textContent);
  if (rows.length === shown.length && rows.every((row, place) => row === shown[place])) return;
  noticeArea.replaceChildren(...rows.map((row) => el("p", { class: "notice" }, row)));
}

function announce() {
  if (announced.size === 0) return;
  const names = [...announced].slice(0, 5).join(", ");
  spoken.textContent = t("announce", { count: announced.size, names });
  announced = new Set();
}

function frame() {
  main = el("main", { id: "view", tabindex: "-1" });
  noticeArea = el("div", { class: "notices", role: "status", "aria-label": t("notices") });
  spoken = el("p", { class: "spoken", "aria-live": "polite" });
  const other = currentLanguage() === "zh" ? "en" : "zh";
  const turn = el("button", { type: "button", lang: other === "zh" ? "zh-Hans" : "en", click: () => change(other) }, t("language.other"));
  const skip = el("a", { class: "skip", href: "#view", click: (event) => {
    event.preventDefault();
    main.focus();
  } }, t("skip"));
  root.replaceChildren(skip,
    el("header", {}, el("h1", {}, t("title", { daemon: t(`daemon.${about.daemon}`) })), el("nav", { "aria-label": t("views") }), turn),
    noticeArea, main, el("footer", {}, t("footer", { version: about.version })), spoken);
}

async function change(language) {
  choice("language", language);
  await loadTexts(language);
  view?.close?.();
  view = null;
  frame();
  await show();
  drawTop();
}

addEventListener("hashchange", async () => {
  view?.close?.();
  view = null;
  failure = "";
  await show();
  main.focus({ preventScroll: true });
});
addEventListener("unhandledrejection", (event) => {
  failure = t("failed", { reason: String(event.reason?.message ?? event.reason) });
  drawTop();
});
setInterval(announce, ANNOUNCE_MS);
setInterval(drawTop, TOP_MS);

const kept = choice("language");
const wanted = ["en", "zh"].includes(kept) ? kept : navigator.languages.find((name) => /^(en|zh)\b/i.test(name)) ?? "en";
await change(wanted.slice(0, 2).toLowerCase());
if (!isAgent) live.begin();
