// One session: its connection, the locks that it holds and waits for, its ephemerals and watches.

import { h } from "./dom.js";
import { bytes, count, dash, millis, time, visible } from "./format.js";
import { facts, place, waiting, who } from "./parts.js";

export const subject = "id";
export const title = (app) => `Session ${visible(app.params.id ?? "")}`;
export const stream = (app) => ["session", { id: app.params.id, limit: app.local.limit ?? 100 }];

export function aside(app) {
  return h("p", { class: "crumbs" }, h("a", { href: app.link("sessions") }, "All sessions"));
}

export function render(app) {
  const v = app.live.view;
  if (!v) return waiting(app);
  const s = v.session, passed = app.now() - Date.parse(v.at);
  return [
    h("p", { class: "lead", id: "summary" }, s.who ? `It is ${visible(s.who)}${s.note ? ` (“${visible(s.note)}”)` : ""}. ` : "", s.address ? `Its client is at ${visible(s.address)}, ` : "The address of its client is not known, ",
      s.here ? "connected to this member." : "connected to another member, or to none."),
    facts([["Timeout", millis(s.timeoutMs)], ["Connections so far", count(s.generation)], ["Connected", s.here ? time(s.connectedAt, app.now()) : null],
      ["Last heard", s.here ? `${millis(s.lastHeardMs + passed)} ago` : null], ["Expires in", s.leftMs === null || s.leftMs === undefined ? null : millis(Math.max(0, s.leftMs - passed))],
      ["Received", s.here ? count(s.received) : null], ["Sent", s.here ? count(s.sent) : null], ["Queued", s.here ? count(s.queued) : null],
      ["Unsent", s.here ? bytes(s.unsentBytes) : null], ["Latency", s.here ? `${millis(s.avgLatencyMs)}, longest ${millis(s.maxLatencyMs)}` : null],
      ["Last request", s.here ? visible(s.lastOp ?? dash) : null], ["Identities", v.identities?.length ? v.identities.map(visible).join(", ") : null]]),
    app.whoami?.acts ? h("p", {}, h("button", { class: "button danger", type: "button", onclick: () => app.acting.endSession(v) }, "End this session…")) : null,
    h("div", { class: "columns" },
      list(app, "Holds", v.holds, v.holds.length, "lock"),
      list(app, "Waits for", v.waits, v.waits.length, "lock", (p) => behind(app, v, p)),
      list(app, "Ephemerals", v.ephemerals.paths, v.ephemerals.total, "nodes"),
      v.watches ? list(app, "Watches", v.watches.paths, v.watches.total, "nodes") : null),
  ];
}

// behind is who holds a lock that the session waits for.
function behind(app, v, path) {
  const l = v.waitsFor?.find((one) => one.path === path);
  return l?.behind ? [", held by ", who(app, l.behind, l)] : null;
}

function list(app, heading, paths, total, view, more = () => null) {
  const id = heading.toLowerCase().replace(" ", "-");
  return h("section", { "aria-labelledby": id, class: "card" }, h("h2", { id }, heading, " ", h("span", { class: "soft" }, count(total))),
    paths.length ? h("ul", { class: "paths" }, paths.map((p) => h("li", {}, place(app, p, view), more(p)))) : h("p", { class: "empty" }, "None."),
    total > paths.length ? h("p", {}, h("button", { type: "button", class: "button", onclick: () => { app.local.limit = 500; app.live.watch(...stream(app)); } }, "Show more")) : null);
}
