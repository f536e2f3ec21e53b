// Keeps the rows of the fleet current: by the stream, else by asking again.
//
// Several aggregators may stand behind one address, and a proxy may take another one for each
// request. Every answer has the epoch of its process. An answer of another epoch than that of the
// rows is not used: the rows are read again, and after MAX_OTHER_EPOCHS such answers the page polls.

import { setDaemonTime } from "./dom.js";

const MAX_OTHER_EPOCHS = 5;
const MAX_NODES_ASKED = 20;
const GATHER_MS = 30;
const BETWEEN_MS = 300;
const WHOLE_MS = 1000;
const POLL_MS = 10_000;
const REFRESH_MS = 60_000;
const SILENT_MS = 45_000;
const RETRY_MS = 1000;
const MAX_RETRY_MS = 30_000;
const ENDS_WITHIN_MS = 60_000;
const MAX_ENDS = 3;
const POLLING_FOR_MS = 300_000;
const ANSWER_MS = 20_000;

/** Return a promise that waits, with up to half of the time more, so that pages do not ask together. */
function pause(ms) {
  return new Promise((resolve) => setTimeout(resolve, ms * (1 + Math.random() / 2)));
}

/** Return the number of an event in its process. */
function numberOf(id) {
  return Number(id.split("-").at(-1));
}

/** The rows of all nodes by name, and how they are kept current. */
export class Live {
  rows = new Map();
  page = null;
  mode = "connecting";
  reason = "";
  answeredAt = 0;
  #changed;
  #event;
  #tag = "";
  #lastId = "";
  #ends = [];
  #pollUntil = 0;
  #pollReason = "";
  #otherEpochs = 0;
  #pending = new Set();
  #wantsWhole = false;
  #flush = 0;
  #abort = null;
  #readAt = 0;

  /** `changed` is called with the names of changed nodes, null for all; `event` with each event. */
  constructor(changed, event) {
    this.#changed = changed;
    this.#event = event;
  }

  /** Keep the rows current for as long as the page is open. */
  async run() {
    let retryMs = RETRY_MS;
    for (;;) {
      try {
        await this.#snapshot();
        retryMs = RETRY_MS;
        if (Date.now() < this.#pollUntil) {
          this.#set("polling", this.#pollReason);
          await pause(POLL_MS);
        } else {
          await this.#follow();
        }
      } catch (error) {
        this.#set("away", String(error.message ?? error));
        await pause(retryMs);
        retryMs = Math.min(retryMs * 2, MAX_RETRY_MS);
      }
    }
  }

  #set(mode, reason) {
    if (mode === this.mode && reason === this.reason) return;
    this.mode = mode;
    this.reason = reason;
    this.#changed(new Set());
  }

  #poll(reason) {
    this.#pollUntil = Date.now() + POLLING_FOR_MS;
    this.#pollReason = reason;
    this.#otherEpochs = 0;
    this.#ends = [];
  }

  async #ask(address, headers = {}) {
    const response = await fetch(address, {
      headers, cache: "no-store", signal: AbortSignal.timeout(ANSWER_MS),
    });
    setDaemonTime(response.headers.get("Date"));
    if (!response.ok && response.status !== 304) throw new Error(String(response.status));
    this.answeredAt = Date.now();
    return response;
  }

  async #snapshot() {
    const response = await this.#ask("api/v1/fleet", this.#tag ? { "If-None-Match": this.#tag } : {});
    if (response.status === 304) return;
    const page = await response.json();
    this.#tag = response.headers.get("ETag") ?? "";
    this.#lastId = page.stream;
    this.#take(page, null);
  }

  #take(page, asked) {
    const isWhole = asked === null;
    const { nodes, ...head } = page;
    this.page = head;
    if (isWhole) this.rows = new Map();
    else {
      // A node keeps its place in the order of names.
      const present = new Set(nodes.map((node) => node.node));
      for (const name of asked) if (!present.has(name)) this.rows.delete(name);
    }
    for (const node of nodes) this.rows.set(node.node, node);
    this.#changed(isWhole ? null : new Set(asked));
  }

  async #follow() {
    const abort = new AbortController();
    this.#abort = abort;
    let silent = setTimeout(() => abort.abort(), SILENT_MS);
    const refresh = setInterval(() => this.#want(), REFRESH_MS * (1 + Math.random() / 2));
    let outcome = "ended";
    try {
      const response = await fetch("api/v1/stream", {
        headers: { Accept: "text/event-stream", "Last-Event-ID": this.#lastId },
        cache: "no-store",
        signal: abort.signal,
      });
      if (!response.ok) throw new Error(String(response.status));
      if (response.headers.get("Vigil-Epoch") !== this.page.epoch) {
        outcome = "otherEpoch";
        return;
      }
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      let text = "";
      for (;;) {
        const { value, done } = await reader.read();
        if (done) return;
        clearTimeout(silent);
        silent = setTimeout(() => abort.abort(), SILENT_MS);
        this.answeredAt = Date.now();
        this.#set("live", "");
        const blocks = (text + value).split("\n\n");
        text = blocks.pop();
        for (const block of blocks) {
          if (this.#receive(block) === "gap") {
            outcome = "gap";
            return;
          }
        }
      }
    } catch (error) {
      if (!abort.signal.aborted) throw error;
      if (abort.signal.reason === "otherEpoch") outcome = "otherEpoch";
    } finally {
      clearTimeout(silent);
      clearInterval(refresh);
      clearTimeout(this.#flush);
      this.#flush = 0;
      this.#pending.clear();
      this.#wantsWhole = false;
      this.#abort = null;
      abort.abort();
      await this.#left(outcome);
    }
  }

  async #left(outcome) {
    // An answer of this process may be asked for next, and its id is not that of the rows.
    this.#tag = "";
    if (outcome === "otherEpoch") {
      this.#otherEpochs += 1;
      if (this.#otherEpochs >= MAX_OTHER_EPOCHS) this.#poll("epoch");
    } else if (outcome === "ended") {
      this.#ends = [...this.#ends.filter((at) => at > Date.now() - ENDS_WITHIN_MS), Date.now()];
      if (this.#ends.length >= MAX_ENDS) this.#poll("displaced");
      else this.#set("away", "ended");
      await pause(RETRY_MS);
    } else {
      await pause(BETWEEN_MS);
    }
  }

  #receive(block) {
    const fields = Object.fromEntries(
      block.split("\n").map((line) => line.split(/: ?(.*)/s, 2)).filter(([name]) => name),
    );
    if (fields.id) this.#lastId = fields.id;
    if (!fields.event) return "";
    if (fields.event === "gap") return "gap";
    const change = JSON.parse(fields.data);
    this.#event(fields.event, change);
    if (fields.event === "leader") this.#wantsWhole = true;
    for (const name of change.node ? [change.node] : (change.nodes ?? [])) this.#pending.add(name);
    this.#schedule();
    return "";
  }

  #want() {
    this.#wantsWhole = true;
    this.#schedule();
  }

  #schedule() {
    if (this.#flush || (!this.#pending.size && !this.#wantsWhole)) return;
    const isWhole = this.#wantsWhole || this.#pending.size > MAX_NODES_ASKED;
    const rested = Math.max(0, this.#readAt + BETWEEN_MS - Date.now());
    const waitMs = isWhole ? WHOLE_MS * (0.5 + Math.random() / 2) : GATHER_MS + rested;
    this.#flush = setTimeout(() => this.#read(), waitMs);
  }

  async #read() {
    const abort = this.#abort;
    this.#readAt = Date.now();
    const names = [...this.#pending];
    const isWhole = this.#wantsWhole || names.length > MAX_NODES_ASKED;
    this.#pending.clear();
    this.#wantsWhole = false;
    try {
      const query = new URLSearchParams(names.map((name) => ["node", name])).toString();
      const tag = isWhole && this.#tag ? { "If-None-Match": this.#tag } : {};
      const response = await this.#ask(isWhole ? "api/v1/fleet" : `api/v1/fleet?${query}`, tag);
      if (abort === null || abort.signal.aborted) return;
      if (response.status === 304) return;
      const page = await response.json();
      if (page.epoch !== this.page.epoch) {
        abort.abort("otherEpoch");
        return;
      }
      this.#otherEpochs = 0;
      // Its stream id stays unused: events up to it may still be on their way, which is no harm.
      if (isWhole) this.#tag = response.headers.get("ETag") ?? "";
      this.#take(page, isWhole ? null : names);
      // An answer is shared for a second, and may be older than the last event.
      if (isWhole && numberOf(page.stream) < numberOf(this.#lastId)) this.#wantsWhole = true;
    } catch {
      abort?.abort();
    } finally {
      this.#flush = 0;
      this.#schedule();
    }
  }
}
