// All sessions: a table in pages, like the locks'.

import { h } from "./dom.js";
import { count, dash, millis, plural, time, visible } from "./format.js";
import { choose, pager, search, sortedBy, table, waiting, who } from "./parts.js";

const limit = 50;

export const title = () => "Sessions";

export function stream(app) {
  const { search, only, sort, order, offset } = app.params;
  return ["sessions", { search, only, sort, order, offset, limit }];
}

export function render(app) {
  const v = app.live.view;
  const offset = Number(app.params.offset ?? 0);
  const passed = v ? app.now() - Date.parse(v.at) : 0;
  return [
    h("form", { class: "filters", role: "search", onsubmit: (e) => e.preventDefault() },
      search(app, { name: "search", label: "Search", placeholder: "id, address" }),
      choose(app, { name: "only", label: "Show", options: [["", "all"], ["here", "connected to this member"]] })),
    v ? [
      h("p", { class: "soft counts" }, `${app.params.search || app.params.only ? `${count(v.matched)} of ` : ""}${plural(v.total, "session")}, ${count(v.here)} connected to this member. Traffic and watches are known of these only.`),
      table({
        caption: "Sessions of the cluster", rows: v.sessions, rowKey: (s) => s.session, sort: app.params.sort ?? "ephemerals", order: app.params.order ?? "desc",
        onSort: (sort, order) => sortedBy(app, sort, order), empty: v.total === 0 ? "There is no session." : "No session is like this.",
        columns: [
          { name: "Session", sort: "session", first: "asc", class: "break", cell: (s) => who(app, s.session, s) },
          { name: "Timeout", class: "n", cell: (s) => millis(s.timeoutMs) },
          { name: "Ephemerals", sort: "ephemerals", class: "n", cell: (s) => count(s.ephemerals) },
          { name: "Watches", sort: "watches", class: "n", cell: (s) => count(s.watches) },
          { name: "Received", sort: "received", class: "n", cell: (s) => count(s.received) },
          { name: "Sent", class: "n", cell: (s) => count(s.sent) },
          { name: "Latency, longest", class: "n", cell: (s) => (s.here ? `${millis(s.avgLatencyMs)}, ${millis(s.maxLatencyMs)}` : dash) },
          { name: "Heard", class: "n", cell: (s) => (s.lastHeardMs === null || s.lastHeardMs === undefined ? dash : `${millis(s.lastHeardMs + passed)} ago`) },
          { name: "Connected", class: "n", cell: (s) => (s.here ? time(s.connectedAt, app.now()) : "elsewhere") },
          { name: "Last request", cell: (s) => visible(s.lastOp ?? dash) },
        ],
      }),
      pager({ offset, limit, matched: v.matched, label: "Pages of sessions", onPage: (at) => app.go("sessions", { ...app.params, offset: at }, true) }),
    ] : waiting(app),
  ];
}
