// The connection to the member: one stream of server-sent events for the view that is shown, and
// single reads. It is read with fetch, because EventSource can send no credentials.

const retryMs = [500, 1000, 2000, 5000];
// hiddenMs is for how long a page that nobody sees keeps its stream.
const hiddenMs = 30_000;

// address is where a part of the API is, relative to the page: it may be below a prefix.
function address(name, params) {
  const url = new URL(`api/v1/${name}`, document.baseURI);
  url.hash = "";
  for (const [k, v] of Object.entries(params ?? {})) {
    if (v !== null && v !== undefined && v !== "") url.searchParams.set(k, v);
  }
  return url;
}

export class Live {
  // onChange is called when anything below has changed.
  constructor(onChange) {
    this.onChange = onChange;
    this.credentials = ""; // "user:password"; in memory only
    this.hello = null;
    this.beat = null;
    this.view = null; // the newest answer of the view, with receivedMs
    this.viewError = null;
    this.status = "connecting"; // live, stale, cut, gone
    this.reason = "";
    this.heardMs = 0; // performance.now() of the newest bytes
    this.clockMs = 0; // the member's clock minus this one's
    this.bytes = 0; // received by all streams so far
    this.want = null;
    this.attempt = 0;
    this.abort = null;
    this.timer = 0;
    setInterval(() => this.check(), 500);
    document.addEventListener("visibilitychange", () => this.visibility());
    addEventListener("online", () => this.reopen());
    // A browser may keep a page that was left, with its stream; six of them would leave no
    // connection to this member for the next page.
    addEventListener("pagehide", () => this.pause());
    addEventListener("pageshow", (e) => { if (e.persisted) this.open(); });
  }

  // current says whether the view answers the present request, not an earlier one.
  current() { return this.view !== null && this.viewOf === this.want; }

  // now is the member's clock, in ms since 1970.
  now() { return Date.now() + this.clockMs; }

  headers(more) {
    const headers = { ...more };
    if (this.credentials) headers.Authorization = `digest ${utf8AsLatin1(this.credentials)}`;
    return headers;
  }

  // get reads a part of the API once.
  async get(name, params, signal) {
    const response = await fetch(address(name, params), { headers: this.headers(), signal, cache: "no-store" });
    return answer(response);
  }

  // act asks the member to do something.
  async act(body) {
    const response = await fetch(address("act"), {
      method: "POST", headers: this.headers({ "Content-Type": "application/json" }), body: JSON.stringify(body),
    });
    return answer(response);
  }

  // watch changes the view that is streamed.
  watch(view, params) {
    const want = JSON.stringify([view, params]);
    if (want === this.want) return;
    const sameView = this.want && JSON.parse(this.want)[0] === view;
    this.want = want;
    if (!sameView) { this.view = null; }
    this.viewError = null;
    this.attempt = 0;
    this.open();
  }

  // authenticate has all later requests, and the stream, carry these credentials.
  authenticate(credentials) {
    this.credentials = credentials;
    this.open();
  }

  reopen() {
    if (this.status !== "live" || !this.abort) this.open();
  }

  visibility() {
    clearTimeout(this.hiddenTimer);
    if (document.hidden) {
      this.hiddenTimer = setTimeout(() => this.pause(), hiddenMs);
    } else if (!this.abort) {
      this.open();
    }
  }

  // pause closes the stream until the next open.
  pause() {
    this.abort?.abort();
    this.abort = null;
    clearTimeout(this.timer);
  }

  open() {
    this.pause();
    if (this.want === null) return;
    const abort = (this.abort = new AbortController());
    this.read(abort).then(() => "the member has ended the stream", (err) => err.message ?? String(err)).then((why) => {
      if (abort.signal.aborted) return;
      this.abort = null;
      this.reason = why;
      if (this.status === "live" || this.status === "connecting") this.status = "gone";
      const wait = retryMs[Math.min(this.attempt++, retryMs.length - 1)];
      this.timer = setTimeout(() => this.open(), wait);
      this.onChange();
    });
  }

  async read(abort) {
    const want = this.want;
    const [view, params] = JSON.parse(want);
    const response = await fetch(address("events", { view, ...params }), {
      headers: this.headers({ Accept: "text/event-stream" }), signal: abort.signal, cache: "no-store",
    });
    if (!response.ok) await answer(response);
    const reader = response.body.getReader();
    const decoder = new TextDecoder();
    let rest = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done || abort.signal.aborted) return;
      this.heardMs = performance.now();
      this.bytes += value.length;
      rest += decoder.decode(value, { stream: true });
      const events = rest.split("\n\n");
      rest = events.pop();
      for (const event of events) this.take(event, view, want);
      this.onChange();
    }
  }

  take(block, view, want) {
    let type = "message", data = "";
    for (const line of block.split("\n")) {
      if (line.startsWith("event:")) type = line.slice(6).trim();
      else if (line.startsWith("data:")) data += line.slice(5).trim();
    }
    if (!data) return;
    const value = JSON.parse(data);
    if (type === "hello") {
      this.hello = value;
      this.attempt = 0;
    } else if (type === "view") {
      this.view = { name: view, ...value };
      this.viewOf = want;
      this.viewError = null;
      this.settle(value);
    } else if (type === "beat") {
      this.beat = value;
      this.settle(value);
    } else if (type === "error") {
      this.viewError = value;
      this.view = null;
    } else if (type === "bye") {
      throw new Error(value.error);
    }
  }

  // settle notes the fields of every answer about the member that made it.
  settle(head) {
    if (head.at) {
      const off = Date.parse(head.at) - Date.now();
      // The answer with the shortest way is the most exact one; a jump of a clock is followed.
      this.clockMs = Math.abs(off - this.clockMs) > 2000 ? off : Math.max(off, this.clockMs - 5);
    }
    this.staleMs = head.staleMs ?? 0;
    this.status = head.serving === false ? "cut" : "live";
    this.reason = "";
  }

  // check notices that nothing is heard.
  check() {
    if (this.status !== "live" && this.status !== "cut") return;
    if (document.hidden && !this.abort) return;
    if (performance.now() - this.heardMs > 3 * (this.hello?.beatMs ?? 2000)) {
      this.status = "stale";
      this.reason = "nothing was heard of the member";
      this.open();
      this.onChange();
    }
  }

  // silentMs is for how long nothing was heard.
  silentMs() { return performance.now() - this.heardMs; }
}

async function answer(response) {
  let body = null;
  try { body = await response.json(); } catch { /* not from the member itself */ }
  if (response.ok && body) return body;
  const err = new Error(body?.error ?? `the answer was ${response.status} ${response.statusText}`.trim());
  err.status = response.status;
  throw err;
}

// utf8AsLatin1 makes a header's value of any text: its bytes are the text in UTF-8.
function utf8AsLatin1(text) {
  return Array.from(new TextEncoder().encode(text), (b) => String.fromCharCode(b)).join("");
}
