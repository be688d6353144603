// All locks: a table that the member searches, sorts and divides into pages, so that ten thousand
// locks are as quick as ten.

import { h } from "./dom.js";
import { count, dash, duration, plural } from "./format.js";
import { badge, choose, kindWords, pager, place, search, sortedBy, table, toneOf, troubleNames, waiting, who } from "./parts.js";

const limit = 50;

export const title = () => "Locks";

export function stream(app) {
  const { search, kind, only, under, sort, order, offset } = app.params;
  return ["locks", { search, kind, only, under, sort, order, offset, limit }];
}

export function render(app) {
  const v = app.live.view;
  const offset = Number(app.params.offset ?? 0);
  return [
    h("form", { class: "filters", role: "search", onsubmit: (e) => e.preventDefault() },
      search(app, { name: "search", label: "Search", placeholder: "path, session, address, note" }),
      choose(app, { name: "kind", label: "Kind", options: kinds(v) }),
      choose(app, { name: "only", label: "Show", options: [["", "all"], ["held", "held"], ["waiting", "with waiters"], ["trouble", "in trouble"]] })),
    v ? [
      h("p", { class: "soft counts", id: "counts" }, counts(app, v)),
      table({
        caption: "Locks, each with its holder", rows: v.locks, rowKey: (l) => l.path, columns: columns(app, v),
        sort: app.params.sort ?? "waiting", order: app.params.order ?? (app.params.sort === "path" ? "asc" : "desc"),
        onSort: (sort, order) => sortedBy(app, sort, order),
        empty: v.total === 0 ? "Nobody holds or waits for a lock." : "No lock is like this.",
      }),
      pager({ offset, limit, matched: v.matched, label: "Pages of locks", onPage: (at) => app.go("locks", { ...app.params, offset: at }, true) }),
    ] : waiting(app),
  ];
}

function kinds(v) {
  const words = { mutex: "mutex", readwrite: "read/write", semaphore: "semaphore", election: "election", ephemeral: "ephemeral", unknown: "unknown" };
  return [["", "all"], ...Object.entries(words).map(([kind, name]) => [kind, v?.kinds ? `${name} (${count(v.kinds[kind] ?? 0)})` : name])];
}

function counts(app, v) {
  const filtered = app.params.search || app.params.kind || app.params.only || app.params.under;
  const text = filtered ? `${count(v.matched)} of ${plural(v.total, "lock")}` : `${plural(v.total, "lock")}, ${plural(v.waiting, "waiter")}`;
  const key = `${app.params.search ?? ""} ${app.params.kind ?? ""} ${app.params.only ?? ""}`;
  if (app.live.current()) {
    if (app.local.counted !== undefined && app.local.counted !== key) app.say(`${text} found.`);
    app.local.counted = key;
  }
  return text;
}

function columns(app, v) {
  const age = app.now() - Date.parse(v.at);
  return [
    { name: "Lock", sort: "path", first: "asc", class: "break", cell: (l) => [place(app, l.path), troubles(l)] },
    { name: "Kind", cell: (l) => kindWords(l) },
    { name: "Holder", class: "break", cell: (l) => holders(app, l) },
    { name: "Held for", sort: "since", class: "n", cell: (l) => held(app, l) },
    { name: "Waiting", sort: "waiting", class: "n", cell: (l) => count(l.waiting) },
    { name: "Longest wait", sort: "wait", class: "n", cell: (l) => (l.waiting ? duration(l.longestWaitMs + age) : dash) },
    { name: "Token", class: "n mono", cell: (l) => l.token ?? dash },
  ];
}

function troubles(l) {
  return (l.trouble ?? []).map((t) => [" ", badge(toneOf(t), troubleNames[t] ?? t)]);
}

function holders(app, l) {
  if (!l.held) return h("span", { class: "soft" }, "nobody");
  return [l.holders.map((one, i) => [i ? h("br", {}) : null, who(app, one.session, one)]),
    l.held > l.holders.length ? h("span", { class: "soft" }, ` and ${count(l.held - l.holders.length)} more`) : null];
}

function held(app, l) {
  if (!l.sinceAt) return dash;
  const exact = l.holders?.[0]?.sinceExact !== false;
  return `${exact ? "" : "≤ "}${duration(app.now() - Date.parse(l.sinceAt))}`;
}
