// Makes elements and texts. No module of this page parses HTML: each text becomes a text node.

const MAX_ROWS = 100;
// A control character in a name must neither end a cell of a copied list nor turn its text around.
const CONTROLS = /[\u0000-\u001f\u007f-\u009f\u200e\u200f\u2028-\u202e\u2066-\u2069]+/g;
const shownRows = new Map();
let texts = {};
let language = "en";
let clockOffsetMs = 0;

/** Return an element. A member of `attributes` that is a function listens to that event. */
export function el(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name, value);
    else if (value !== null && value !== undefined && value !== false)
      element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return element;
}

/** Load the catalogue of a language; the page has "en" and "zh", and carries the likely one. */
export async function loadTexts(wanted) {
  const carried = document.getElementById("texts");
  if (carried.lang === wanted) texts = JSON.parse(carried.textContent);
  else {
    const response = await fetch(new URL(`${wanted}.json`, import.meta.url));
    if (!response.ok) throw new Error(String(response.status));
    texts = await response.json();
  }
  language = wanted;
  document.documentElement.lang = wanted === "zh" ? "zh-Hans" : "en";
}

/** Return the language of the texts. */
export function currentLanguage() {
  return language;
}

/** Return a text of the catalogue with `values` in place of {name}. */
export function t(key, values = {}) {
  const text = texts[key];
  if (text === undefined) return key;
  return text.replace(/\{(\w+)\}/g, (whole, name) => (name in values ? String(values[name]) : whole));
}

/** Return whether the catalogue has a text. */
export function hasText(key) {
  return key in texts;
}

/** Set by how many milliseconds the daemon's clock is ahead of this browser's. */
export function setClockOffset(ms) {
  clockOffsetMs = ms;
}

/** Return by how many milliseconds the daemon's clock is ahead of this browser's. */
export function clockOffset() {
  return clockOffsetMs;
}

/** Return the daemon's time in epoch milliseconds. */
export function daemonNow() {
  return Date.now() + clockOffsetMs;
}

/** Return the time that an address names, in epoch milliseconds; not a number where there is none. */
export function timeOf(at) {
  return new Date(at || NaN).getTime();
}

/** Return a field for a time; `change` gets it in the form of an address, the same in all time zones. */
export function timeField(at, change) {
  const ms = timeOf(at);
  return el("input", { type: "datetime-local", step: "1", value: Number.isNaN(ms) ? "" : moment(ms).replace(" ", "T"),
    change: ({ target }) => change(target.value && new Date(target.value).toISOString().replace(/\.\d+/, "")) });
}

/** Return a date and a time of day of this browser's time zone, in an order that no country mistakes. */
export function moment(ms) {
  if (ms === null || ms === undefined) return t("unknown");
  return new Date(ms).toLocaleString("sv-SE");
}

/** Return a time with how long ago that was. */
export function since(ms) {
  if (ms === null || ms === undefined) return t("unknown");
  const seconds = Math.max(0, Math.round((daemonNow() - ms) / 1000));
  const [count, unit] =
    seconds < 120 ? [seconds, "seconds"]
    : seconds < 7200 ? [Math.round(seconds / 60), "minutes"]
    : seconds < 172800 ? [Math.round(seconds / 3600), "hours"]
    : [Math.round(seconds / 86400), "days"];
  return `${t(`ago.${unit}`, { count })} (${moment(ms)})`;
}

/** Return an address inside of the page. */
export function link(parts, query = {}) {
  const path = parts.map(encodeURIComponent).join("/");
  const search = new URLSearchParams(
    Object.entries(query).filter(([, value]) => value !== "" && value !== null && value !== undefined),
  ).toString();
  return `#/${path}${search ? `?${search}` : ""}`;
}

/**
 * Return a table with a row for each of `items`; `cells` returns texts or elements of one. It begins
 * with MAX_ROWS rows and a button for more; what is copied has all. An empty one is a sentence.
 */
export function table(title, heads, items, cells, empty = "none") {
  if (items.length === 0) return section(title, el("p", { class: "empty" }, t(empty)));
  const row = (item) => el("tr", {}, cells(item).map((cell, place) =>
    place === 0 ? el("th", { scope: "row" }, cell) : el("td", {}, cell)));
  // A view that is made anew shows as many rows as before.
  const key = `${location.hash} ${heads}`;
  const body = el("tbody", {}, items.slice(0, shownRows.get(key) ?? MAX_ROWS).map(row));
  const shown = el("table", { "aria-label": title },
    el("thead", {}, el("tr", {}, heads.map((head) => el("th", { scope: "col" }, head)))), body);
  const left = () => items.length - body.childElementCount;
  const more = el("button", { type: "button", "aria-label": t("list.more.of", { title }), click: () => {
    const count = body.childElementCount + MAX_ROWS;
    shownRows.set(key, count);
    body.append(...items.slice(body.childElementCount, count).map(row));
    label();
  } });
  const label = () => {
    more.textContent = t("list.more", { count: left() });
    more.hidden = left() === 0;
  };
  label();
  const lines = () => [heads.join("\t"), ...items.map((item) => cells(item).map(plain).join("\t"))].join("\n");
  // Wide tables scroll by the keyboard as well.
  const scroller = el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": title }, shown);
  return section(title, copyButton(title, lines), scroller, more);
}

/** Put `parts` below `parent`. The focus stays, and so does a text that is selected for a copy. */
export function renew(parent, parts) {
  const active = parent.contains(document.activeElement) ? document.activeElement : null;
  // The next change shows what this one would have shown.
  if (active?.tagName === "TEXTAREA") return;
  const attribute = active?.hasAttribute("href") ? "href" : "aria-label";
  const value = active?.getAttribute(attribute);
  parent.replaceChildren(...parts);
  if (value) [...parent.querySelectorAll(active.tagName)].find((other) => other.getAttribute(attribute) === value)?.focus();
}

/** Return a part of a view below a heading. */
export function section(title, ...children) {
  return el("section", {}, el("h2", {}, title), ...children);
}

/** Return pairs of a name and a value. */
export function facts(pairs) {
  return el("dl", {}, pairs.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value))));
}

function plain(cell) {
  return (typeof cell === "string" ? cell : cell.textContent).replace(CONTROLS, " ");
}

function copyButton(title, lines) {
  const button = el("button", { type: "button", class: "copy", "aria-label": t("copy.list", { title }) }, t("copy"));
  button.addEventListener("click", async () => {
    const text = lines();
    try {
      // Over plain http on another address than loopback a browser has no clipboard.
      await navigator.clipboard.writeText(text);
      button.textContent = t("copied");
    } catch {
      const field = el("textarea", { readonly: true, rows: "8", "aria-label": t("copy.field") });
      field.value = text;
      button.replaceWith(field);
      field.focus();
      field.select();
    }
  });
  return button;
}

/** Return the answer of an API address as JSON. Raises where there is none; 404 has no answer. */
export async function ask(address, options = {}) {
  const response = await fetch(address, { cache: "no-store", ...options });
  const daemonMs = Date.parse(response.headers.get("Date") ?? "");
  if (!Number.isNaN(daemonMs)) setClockOffset(daemonMs - Date.now());
  if (response.status === 404) return null;
  if (!response.ok) {
    const refusal = await response.json().catch(() => ({}));
    throw new Error(refusal.error ?? String(response.status));
  }
  return response.json();
}

/** Store or read a choice; a browser may have no storage. */
export function choice(name, value) {
  try {
    if (value !== undefined) localStorage.setItem(name, value);
    return localStorage.getItem(name);
  } catch {
    return null;
  }
}
