// Keeps the rows of the fleet current: by the stream, else by asking again.
//
// All tabs of a browser share one stream: this file is also the script of a SharedWorker, which
// holds the rows and sends each change to every tab. A tab without such a worker does so itself.
//
// Several aggregators may stand behind one address, and a proxy may take another one for each
// request. Every answer has the epoch of its process. An answer of another epoch than that of the
// rows is not used: the rows are read again, and after MAX_OTHER_EPOCHS such answers the page polls.

// A worker's address is that of this file, not that of the page.
const BASE = new URL("../../", import.meta.url);
const MAX_OTHER_EPOCHS = 5;
const MAX_NODES_ASKED = 20;
// Rows come by the stream within this time; it sends none where too many nodes change at once.
const ROWS_MS = 1000;
const BETWEEN_MS = 300;
const WHOLE_MS = 1000;
const POLL_MS = 10_000;
const REFRESH_MS = 60_000;
const SILENT_MS = 45_000;
const RETRY_MS = 1000;
const STARTING_MS = 3000;
const NOT_READY = 503;
const MAX_RETRY_MS = 30_000;
const ENDS_WITHIN_MS = 60_000;
const MAX_ENDS = 3;
const POLLING_FOR_MS = 300_000;
const ANSWER_MS = 20_000;
const TICK_MS = 10_000;
// Timers of a hidden tab fire once a minute at least; a longer time was a sleep.
const ASLEEP_MS = 150_000;
const PING_MS = 3_000;
const MAX_UNANSWERED = 2;
const MAX_REPLACED = 2;
const FORGOTTEN_MS = 180_000;

/** Return a promise that waits, with up to half of the time more, so that pages do not ask together. */
function pause(ms) {
  return new Promise((resolve) => setTimeout(resolve, ms * (1 + Math.random() / 2)));
}

/** Return the number of an event in its process. */
function numberOf(id) {
  return Number(id.split("-").at(-1));
}

/** Return `rows` with those of the `asked` nodes as in `nodes`; all are new where `asked` is null. */
function merged(rows, nodes, asked) {
  if (asked === null) return new Map(nodes.map((node) => [node.node, node]));
  // A node keeps its place in the order of names.
  const present = new Set(nodes.map((node) => node.node));
  for (const name of asked) if (!present.has(name)) rows.delete(name);
  for (const node of nodes) rows.set(node.node, node);
  return rows;
}

/** Return which rows are other ones in `nodes`, null where it has other nodes: a tab draws what it gets. */
function differing(rows, nodes) {
  if (nodes.length !== rows.size || !nodes.every((node) => rows.has(node.node))) return null;
  const changed = nodes.filter((node) => JSON.stringify(node) !== JSON.stringify(rows.get(node.node)));
  return { nodes: changed, asked: changed.map((node) => node.node) };
}

/** Reads the rows of all nodes and the stream, and sends each change as a message for `Rows`. */
class Live {
  #rows = new Map();
  #page = null;
  #mode = "connecting";
  #reason = "";
  #answeredAt = 0;
  #clockOffsetMs = 0;
  #send;
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

  constructor(send) {
    this.#send = send;
  }

  /** Return a message with how the rows are kept current now. */
  status() {
    return { mode: this.#mode, reason: this.#reason, answeredAt: this.#answeredAt, clockOffsetMs: this.#clockOffsetMs };
  }

  /** Return a message with all rows. */
  whole() {
    return { ...this.status(), page: this.#page, nodes: [...this.#rows.values()], asked: null };
  }

  /** Keep the rows current for as long as a page is open. */
  async run() {
    let tickedAt = Date.now();
    setInterval(() => {
      const isAwake = Date.now() - tickedAt < ASLEEP_MS;
      tickedAt = Date.now();
      // The connection of a computer that slept may be dead without an end.
      if (!isAwake) this.#abort?.abort("asleep");
    }, TICK_MS);
    let retryMs = RETRY_MS;
    for (;;) {
      try {
        await this.#snapshot();
        retryMs = RETRY_MS;
        if (performance.now() < this.#pollUntil) {
          this.#set("polling", this.#pollReason);
          await pause(POLL_MS);
        } else {
          await this.#follow();
        }
      } catch (error) {
        if (error.cause === NOT_READY) {
          this.#set("starting", "");
          await pause(STARTING_MS);
          continue;
        }
        this.#set("away", String(error.message ?? error));
        await pause(retryMs);
        retryMs = Math.min(retryMs * 2, MAX_RETRY_MS);
      }
    }
  }

  #set(mode, reason) {
    if (mode === this.#mode && reason === this.#reason) return;
    this.#mode = mode;
    this.#reason = reason;
    this.#send(this.status());
  }

  #poll(reason) {
    // The wall clock may be set meanwhile.
    this.#pollUntil = performance.now() + POLLING_FOR_MS;
    this.#pollReason = reason;
    this.#otherEpochs = 0;
    this.#ends = [];
  }

  async #ask(address, headers = {}) {
    const response = await fetch(new URL(address, BASE), {
      headers, cache: "no-store", signal: AbortSignal.timeout(ANSWER_MS),
    });
    const daemonMs = Date.parse(response.headers.get("Date") ?? "");
    if (!Number.isNaN(daemonMs)) this.#clockOffsetMs = daemonMs - Date.now();
    if (!response.ok && response.status !== 304) throw new Error(String(response.status), { cause: response.status });
    this.#answeredAt = Date.now();
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
    const { nodes, ...head } = page;
    this.#page = head;
    const change = (asked === null && differing(this.#rows, nodes)) || { nodes, asked };
    this.#rows = merged(this.#rows, change.nodes, change.asked);
    this.#send({ ...this.status(), page: head, ...change });
  }

  async #follow() {
    const abort = new AbortController();
    this.#abort = abort;
    let silent = setTimeout(() => abort.abort("silent"), SILENT_MS);
    const refresh = setInterval(() => this.#want(), REFRESH_MS * (1 + Math.random() / 2));
    let outcome = "ended";
    try {
      const response = await fetch(new URL("api/v1/stream?rows=true", BASE), {
        headers: { Accept: "text/event-stream", "Last-Event-ID": this.#lastId },
        cache: "no-store",
        signal: abort.signal,
      });
      if (!response.ok) throw new Error(String(response.status));
      if (response.headers.get("Vigil-Epoch") !== this.#page.epoch) {
        outcome = "otherEpoch";
        return;
      }
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      let text = "";
      for (;;) {
        const { value, done } = await reader.read();
        if (done) return;
        clearTimeout(silent);
        silent = setTimeout(() => abort.abort("silent"), SILENT_MS);
        this.#answeredAt = Date.now();
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
      const { aborted, reason } = abort.signal;
      if (!aborted) throw error;
      if (reason === "otherEpoch") outcome = reason;
      else if (reason === "asleep") outcome = "gap";
      else if (reason !== "silent") {
        // The rows could not be read: that is not an end of the stream by its server.
        outcome = "failed";
        throw reason;
      }
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
      const now = performance.now();
      this.#ends = [...this.#ends.filter((at) => at > now - ENDS_WITHIN_MS), now];
      if (this.#ends.length >= MAX_ENDS) this.#poll("displaced");
      else this.#set("away", "ended");
      await pause(RETRY_MS);
    } else if (outcome === "gap") {
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
    if (fields.event === "rows") {
      for (const name of change.asked) this.#pending.delete(name);
      this.#take(change.page, change.asked);
      return "";
    }
    this.#send({ ...this.status(), event: fields.event, change });
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
    const rested = Math.max(0, this.#readAt + BETWEEN_MS - performance.now());
    const waitMs = isWhole ? WHOLE_MS * (0.5 + Math.random() / 2) : ROWS_MS + rested;
    this.#flush = setTimeout(() => this.#read(), waitMs);
  }

  async #read() {
    const abort = this.#abort;
    this.#readAt = performance.now();
    const names = [...this.#pending];
    const isWhole = this.#wantsWhole || names.length > MAX_NODES_ASKED;
    this.#pending.clear();
    this.#wantsWhole = false;
    try {
      if (!isWhole && !names.length) return;
      const query = new URLSearchParams(names.map((name) => ["node", name])).toString();
      const tag = isWhole && this.#tag ? { "If-None-Match": this.#tag } : {};
      const response = await this.#ask(isWhole ? "api/v1/fleet" : `api/v1/fleet?${query}`, tag);
      if (abort === null || abort.signal.aborted) return;
      if (response.status === 304) return;
      const page = await response.json();
      if (page.epoch !== this.#page.epoch) {
        abort.abort("otherEpoch");
        return;
      }
      this.#otherEpochs = 0;
      // Its stream id stays unused: events up to it may still be on their way, which is no harm.
      if (isWhole) this.#tag = response.headers.get("ETag") ?? "";
      this.#take(page, isWhole ? null : names);
      // An answer is shared for a second, and may be older than the last event.
      if (isWhole && numberOf(page.stream) < numberOf(this.#lastId)) this.#wantsWhole = true;
    } catch (error) {
      abort?.abort(error);
    } finally {
      this.#flush = 0;
      this.#schedule();
    }
  }
}

/** The rows of all nodes by name, as a tab has them, from the worker that all tabs share. */
export class Rows {
  rows = new Map();
  page = null;
  mode = "connecting";
  reason = "";
  answeredAt = 0;
  clockOffsetMs = 0;
  #changed;
  #event;
  #port = null;
  #unanswered = 0;
  #replaced = 0;

  /** `changed` is called with the names of changed nodes, null for all; `event` with each event. */
  constructor(changed, event) {
    this.#changed = changed;
    this.#event = event;
  }

  /** Begin to take changes: from the worker, or from the daemon where the browser has no worker. */
  begin() {
    try {
      this.#connect();
    } catch {
      // A browser may have none, or forbid it as it forbids storage.
      this.#alone();
      return;
    }
    setInterval(() => this.#ping(), PING_MS);
    addEventListener("pagehide", () => this.#port?.postMessage("bye"));
    addEventListener("pageshow", () => this.#port?.postMessage("ping"));
  }

  #connect() {
    const worker = new SharedWorker(import.meta.url, { type: "module" });
    const { port } = worker;
    worker.onerror = () => {
      if (port === this.#port) this.#alone();
    };
    port.onmessage = ({ data }) => {
      if (port !== this.#port) return;
      this.#unanswered = 0;
      this.#replaced = 0;
      this.#take(data);
    };
    this.#port = port;
    this.#unanswered = 0;
    port.postMessage("ping");
  }

  #ping() {
    if (this.#port === null) return;
    this.#unanswered += 1;
    if (this.#unanswered <= MAX_UNANSWERED) {
      this.#port.postMessage("ping");
      return;
    }
    // Nothing shows the end of a worker but its silence. All tabs come to the same new one.
    this.#port.close();
    this.#replaced += 1;
    if (this.#replaced > MAX_REPLACED) this.#alone();
    else this.#connect();
  }

  #alone() {
    this.#port = null;
    new Live((message) => this.#take(message)).run();
  }

  #take(message) {
    const isOther = message.mode !== this.mode || message.reason !== this.reason;
    for (const name of ["mode", "reason", "answeredAt", "clockOffsetMs"]) this[name] = message[name];
    if (message.page) {
      this.page = message.page;
      this.rows = merged(this.rows, message.nodes, message.asked);
      this.#changed(message.asked && new Set(message.asked));
    } else if (isOther) this.#changed(new Set());
    if (message.event) this.#event(message.event, message.change);
  }
}

/** Keep one stream for all tabs. A tab shows by a ping that it is open, and that it has the rows. */
function serve() {
  const tabs = new Map();
  const live = new Live((message) => {
    for (const port of tabs.keys()) port.postMessage(message);
  });
  addEventListener("connect", ({ ports: [port] }) => {
    port.onmessage = ({ data }) => {
      const isNew = !tabs.has(port);
      if (data === "bye") tabs.delete(port);
      else {
        tabs.set(port, Date.now());
        port.postMessage(isNew ? live.whole() : live.status());
      }
    };
  });
  setInterval(() => {
    // A tab that was closed at once, or sleeps; its next ping brings all rows again.
    for (const [port, pingedAt] of tabs) if (Date.now() - pingedAt > FORGOTTEN_MS) tabs.delete(port);
  }, TICK_MS);
  live.run();
}

if ("SharedWorkerGlobalScope" in globalThis) serve();
