// The trouble of the locks: deadlocks first, drawn; then the rest, each with its meaning.

import { h } from "./dom.js";
import { count, dash, duration, millis, plural, time, visible } from "./format.js";
import { drawDeadlock } from "./graph.js";
import { badge, place, table, toneOf, waiting, who } from "./parts.js";

export const title = () => "Trouble";
export const stream = () => ["trouble", {}];

export function render(app) {
  const v = app.live.view;
  if (!v) return waiting(app);
  const all = Object.values(v.counts).reduce((a, b) => a + b, 0);
  const shown = sections.filter((s) => (v.counts[s.kind] ?? 0) > 0 || v[s.list]?.length);
  const quiet = sections.filter((s) => !shown.includes(s));
  return [
    h("p", { class: "lead", id: "summary" }, all === 0 ? "There is no trouble." : `${plural(all, "case")} of trouble.`),
    shown.map((s) => h("section", { key: s.kind, "aria-labelledby": `${s.kind}-h`, "data-trouble": s.kind },
      h("h2", { id: `${s.kind}-h` }, s.heading, " ", badge(toneOf(s.kind), count(v.counts[s.kind] ?? v[s.list].length))),
      h("p", { class: "soft" }, s.meaning(v)),
      s.draw(app, v),
      v.counts[s.kind] > v[s.list].length ? h("p", { class: "soft" }, `The first ${count(v[s.list].length)} of them.`) : null)),
    h("section", { "aria-labelledby": "none-h", class: "quiet-section" }, h("h2", { id: "none-h" }, "Looked for, and not found"),
      h("ul", { class: "chips" }, quiet.map((s) => h("li", { key: s.kind }, s.heading,
        s.kind === "expiring" && v.expiringKnown === false ? h("span", { class: "soft" }, " (only the leader knows)") : null))),
      quiet.length === 0 ? h("p", { class: "empty" }, "Nothing.") : null),
  ];
}

const limit = (v, name) => v.limits?.[name];

const sections = [
  {
    kind: "deadlock", list: "deadlocks", heading: "Deadlocks",
    meaning: () => "Each of these sessions waits for the next, in a circle. None of them goes on until one gives up or is ended.",
    draw: (app, v) => v.deadlocks.map((d, i) => deadlock(app, d, i)),
  },
  {
    kind: "twoHolders", list: "twoHolders", heading: "Perhaps two holders",
    meaning: () => "Libraries whose locks do not wait for each other share a path.",
    draw: (app, v) => table({ caption: "Locks that may have two holders", rows: v.twoHolders, columns: [
      { name: "Lock", class: "break", cell: (t) => place(app, t.path) }, { name: "Why", class: "break", cell: (t) => visible(t.warning) }] }),
  },
  {
    kind: "long", list: "long", heading: "Held for long",
    meaning: (v) => `Held for more than ${duration(limit(v, "longMs"))} while others wait, or ten times as long without.`,
    draw: (app, v) => table({ caption: "Locks held for long", rows: v.long, columns: [
      { name: "Lock", class: "break", cell: (t) => place(app, t.path) },
      { name: "Holder", class: "break", cell: (t) => who(app, t.session, t) },
      { name: "Since", class: "n", cell: (t) => time(t.sinceAt, app.now()) },
      { name: "For", class: "n", cell: (t) => duration(app.now() - Date.parse(t.sinceAt)) },
      { name: "Waiting", class: "n", cell: (t) => count(t.waiting) }] }),
  },
  {
    kind: "hot", list: "hot", heading: "Locks with many waiters",
    meaning: (v) => `At least ${plural(limit(v, "hotWaiters"), "contender")} wait for one lock.`,
    draw: (app, v) => {
      const most = Math.max(1, ...v.hot.map((t) => t.waiting));
      return table({ caption: "Locks with many waiters", rows: v.hot, columns: [
        { name: "Lock", class: "break", cell: (t) => place(app, t.path) },
        { name: "Waiting", class: "n", cell: (t) => h("span", { class: "meter" }, h("span", { class: "meter-bar", style: { width: `${(t.waiting / most) * 100}%` } }), h("span", {}, count(t.waiting))) },
        { name: "Longest wait", class: "n", cell: (t) => duration(t.longestWaitMs + app.now() - Date.parse(v.at)) },
        { name: "Holder", class: "break", cell: (t) => (t.holder ? who(app, t.holder, t) : dash) }] });
    },
  },
  {
    kind: "orphan", list: "orphans", heading: "Nodes left behind",
    meaning: () => "One session has two nodes in the queue of a lock. A library may have left one behind when a reply was lost; then the queue stands still until the session ends.",
    draw: (app, v) => table({ caption: "Nodes that may have been left behind", rows: v.orphans, columns: [
      { name: "Lock", class: "break", cell: (t) => place(app, t.path) }, { name: "Session", class: "break", cell: (t) => who(app, t.session, t) },
      { name: "Nodes", class: "break mono", cell: (t) => t.nodes.map(visible).join(", ") }, { name: "Since", class: "n", cell: (t) => time(t.oldestAt, app.now()) }] }),
  },
  {
    kind: "herd", list: "herds", heading: "Many watches on one node",
    meaning: (v) => `At least ${plural(limit(v, "herdWatches"), "watch", "watches")} are on one node: all of them fire when it changes. Connections to this member only.`,
    draw: (app, v) => table({ caption: "Nodes with many watches", rows: v.herds, columns: [
      { name: "Node", class: "break", cell: (t) => place(app, t.path, "nodes") }, { name: "Watches", class: "n", cell: (t) => count(t.watches) }] }),
  },
  {
    kind: "expiring", list: "expiring", heading: "Sessions about to expire",
    meaning: () => "Nothing was heard of these sessions for most of their timeout.",
    draw: (app, v) => table({ caption: "Sessions about to expire", rows: v.expiring, columns: [
      { name: "Session", class: "break", cell: (t) => who(app, t.session, t) }, { name: "Left", class: "n", cell: (t) => millis(Math.max(0, t.leftMs - (app.now() - Date.parse(v.at)))) },
      { name: "Timeout", class: "n", cell: (t) => millis(t.timeoutMs) }, { name: "Ephemerals", class: "n", cell: (t) => count(t.ephemerals) }] }),
  },
  {
    kind: "reconnecting", list: "reconnecting", heading: "Clients that reconnect",
    meaning: (v) => `At least ${plural(limit(v, "reconnects"), "connection")} of one session within ${duration(limit(v, "reconnectsWithinMs"))}.`,
    draw: (app, v) => table({ caption: "Clients that reconnect all the time", rows: v.reconnecting, columns: [
      { name: "Session", class: "break", cell: (t) => who(app, t.session, t) }, { name: "Connections", class: "n", cell: (t) => count(t.reconnects) },
      { name: "Since", class: "n", cell: (t) => time(t.sinceAt, app.now()) }] }),
  },
];

function deadlock(app, d, i) {
  const circle = d.edges.filter((e) => e.cycle), others = d.edges.filter((e) => !e.cycle);
  return h("article", { key: d.sessions.join(" "), class: "card deadlock", "aria-label": `Deadlock ${i + 1} of ${plural(d.sessions.length, "session")}` },
    drawDeadlock(d),
    h("div", {},
      h("ol", { class: "waits" }, circle.map((e) => h("li", {}, edge(app, d, e)))),
      others.length ? [h("p", { class: "soft" }, "Waiting for the circle:"), h("ul", { class: "waits" }, others.map((e) => h("li", {}, edge(app, d, e))))] : null));
}

function edge(app, d, e) {
  const named = (id) => who(app, id, d.names?.[id]);
  return [named(e.waiter), " waits for ", place(app, e.path), ", ", e.why === "within" ? "inside of a lock of " : "held by ", named(e.holder)];
}

