// One lock: who holds it, the queue, and its history as a picture and as a table.

import { h } from "./dom.js";
import { bytes, count, dash, decode, duration, middle, millis, plural, text, time, visible, zone } from "./format.js";
import { badge, facts, kindWords, pager, sentence, switcher, table, toneOf, troubleNames, waiting, who } from "./parts.js";
import { drawTimeline } from "./timeline.js";

const limit = 100;

export const subject = "path";
export const title = (app) => visible(app.params.path ?? "");
export const stream = (app) => ["lock", { path: app.params.path, offset: app.params.offset, limit }];

export function aside(app) {
  return h("p", { class: "crumbs" }, h("a", { href: app.link("locks") }, "All locks"), " · ",
    h("a", { href: app.link("nodes", { path: app.params.path }) }, "Its node"));
}

export function render(app) {
  const v = app.live.view;
  follow(app, v);
  if (!v && !app.live.viewError) return waiting(app);
  return [
    v ? [sum(app, v), warnings(v)] : gone(app),
    h("section", { class: "card", "aria-labelledby": "timeline-h" },
      h("div", { class: "card-head" }, h("h2", { id: "timeline-h" }, "Timeline"),
        switcher("Time shown", [[1, "1 min"], [5, "5 min"], [30, "30 min"], [180, "3 h"]], app.local.minutes ?? 5,
          (m) => { app.local.minutes = m; app.draw(); })),
      timeline(app, v)),
    v ? h("section", { "aria-labelledby": "queue-h" }, h("h2", { id: "queue-h" }, "Queue"), queue(app, v)) : null,
    h("section", { "aria-labelledby": "history-h" }, h("h2", { id: "history-h" }, "History"), history(app)),
  ];
}

// follow reads the history when the lock has changed: one request at a time.
function follow(app, v) {
  const key = v ? v.zxid + v.at : app.live.viewError ? "gone" : null;
  if (key === null || app.local.historyOf === key || app.local.reading) return;
  app.local.historyOf = key;
  app.local.reading = true;
  const local = app.local;
  app.live.get("history", { path: app.params.path }).then(
    (answer) => { local.history = answer; local.historyError = null; },
    (err) => { local.historyError = err.message; },
  ).then(() => { local.reading = false; app.draw(); });
}

function gone(app) {
  return h("p", { class: "lead", id: "summary" }, app.live.viewError.status === 404
    ? "Nobody holds this lock, and nobody waits for it." : sentence(app.live.viewError.error));
}

function sum(app, v) {
  const l = v.lock;
  const held = l.held === 0 ? "Nobody holds it" : l.held === 1 ? ["Held by ", who(app, l.holders[0].session, l.holders[0])] : `Held by ${count(l.held)}`;
  const since = l.sinceAt ? ` ${l.holders?.[0]?.sinceExact === false ? "for at most" : "for"} ${duration(app.now() - Date.parse(l.sinceAt))}` : "";
  const waits = l.waiting === 0 ? "nobody waits" : l.waiting === 1 ? "one waits" : `${count(l.waiting)} wait`;
  const age = app.now() - Date.parse(v.at);
  return [
    h("p", { class: "lead", id: "summary" }, held, since, `; ${waits}.`, (l.trouble ?? []).map((t) => [" ", badge(toneOf(t), troubleNames[t] ?? t)])),
    facts([["Kind", kindWords(l)], ["Libraries", (l.libraries ?? []).map(visible).join(", ") || dash],
      ["Token", h("span", { class: "mono", id: "token" }, l.token ?? dash)],
      ["Longest wait", l.waiting ? duration(l.longestWaitMs + age) : dash], ["Watches here", count(v.watches)]]),
  ];
}

function warnings(v) {
  if (!v.warnings?.length) return null;
  return h("ul", { class: "warnings" }, v.warnings.map((w) => h("li", {}, visible(w))));
}

function timeline(app, v) {
  const answer = app.local.history;
  if (!answer) return h("p", { class: "empty" }, app.local.historyError ? sentence(app.local.historyError) : "Reading…");
  app.local.hues ??= new Map();
  return drawTimeline({ hues: app.local.hues, answer, queue: v?.queue ?? [], now: app.now(), minutes: app.local.minutes ?? 5, width: Math.max(260, app.width - 34) });
}

function queue(app, v) {
  const offset = Number(app.params.offset ?? 0);
  const passed = app.now() - Date.parse(v.at);
  const first = v.queue.findIndex((c) => !c.held && !c.mayHold);
  const state = (c) => {
    if (c.held) return badge("strong", "holds");
    if (c.mayHold) return badge("bad", "may hold");
    const place = offset + v.queue.indexOf(c) - (offset === 0 ? first : v.lock.held) + 1;
    return h("span", {}, `waits ${count(place)}`);
  };
  const acting = app.whoami?.acts;
  return [
    table({
      caption: "The queue of this lock, holders first", rows: v.queue, rowKey: (c) => `${c.path} ${c.node}`, rowClass: (c) => (c.held ? "holds" : null),
      empty: "Nobody is in the queue.",
      columns: [
        { name: "Contender", class: "break", cell: (c) => [who(app, c.session, c), marks(c), data(c)] },
        { name: "State", cell: state },
        { name: "Wants", cell: (c) => c.mode },
        { name: "For", class: "n", cell: (c) => (c.held || c.mayHold ? `${c.sinceExact === false ? "≤ " : ""}${duration(app.now() - Date.parse(c.sinceAt ?? c.createdAt))}` : duration(c.waitMs + passed)) },
        { name: "Session timeout", class: "n", cell: (c) => millis(c.timeoutMs) },
        { name: "Library", cell: (c) => visible(c.library || dash) },
        { name: "Node", class: "break", cell: (c) => h("a", { class: "mono", href: app.link("nodes", { path: nodePath(c) }), title: visible(c.node) }, visible(middle(c.node || "(itself)", 26))) },
        ...(acting ? [{ name: "Act", cell: (c) => (c.held || c.mayHold ? h("button", { class: "button danger", type: "button", "aria-label": `Break the lock of session ${c.session}`, onclick: () => app.acting.breakLock(v, c) }, "Break…") : null) }] : []),
      ],
    }),
    pager({ offset, limit, matched: v.lock.held + v.lock.waiting, label: "Pages of the queue", onPage: (at) => app.go("lock", { ...app.params, offset: at }, true) }),
  ];
}

function nodePath(c) {
  if (!c.node || c.path === c.node || c.path.endsWith(`/${c.node}`)) return c.path;
  return c.path === "/" ? `/${c.node}` : `${c.path}/${c.node}`;
}

function marks(c) {
  return [c.priority ? h("span", { class: "soft" }, ` priority ${c.priority}`) : null,
    c.yielded ? h("span", { class: "soft" }, " has let others go first") : null, c.deadlock ? [" ", badge("bad", "deadlock")] : null, c.orphan ? [" ", badge("doubt", "left behind?")] : null,
    c.within?.length ? h("span", { class: "soft" }, ` inside of a lock of ${c.within.length === 1 ? "session " + c.within[0] : plural(c.within.length, "session")}`) : null,
    c.mayIgnore?.length ? h("span", { class: "soft" }, ` may not wait for ${c.mayIgnore.map(visible).join(", ")}`) : null];
}

// data shows the start of the contender's data, if there is text.
function data(c) {
  if (!c.data || c.data.bytes === 0 || c.note || c.who) return null;
  if (c.data.is === "binary") return h("span", { class: "soft" }, ` ${bytes(c.data.bytes)} of data`);
  const words = text(decode(c.data.base64));
  return c.address?.startsWith(words) ? null : h("span", { class: "note" }, ` “${visible(middle(words, 80))}”`);
}

// How a hold ended, for people.
function ending(app, hold) {
  switch (hold.end) {
    case null: case undefined: return badge("strong", "goes on");
    case "released": return "released";
    case "closed": return "session closed";
    case "expired": return badge("bad", "session expired");
    case "ended": return badge("bad", "ended by an operator");
    case "deleted": return [badge("bad", "deleted"), " by ", hold.endedBy ? who(app, hold.endedBy) : "nobody knows whom"];
    default: return visible(hold.end);
  }
}

const begins = {
  start: "when this member started", ring: "because older events have been overwritten", snapshot: "when a snapshot from the leader replaced the state",
};

function history(app) {
  const a = app.local.history;
  if (!a) return h("p", { class: "empty" }, app.local.historyError ? sentence(app.local.historyError) : "Reading…");
  if (!a.enabled) return h("p", { class: "empty" }, "This member keeps no history: console.historyBytes is 0.");
  if (a.hidden) return h("p", { class: "empty" }, "What happened may not be shown: the node is gone, and no ACL says who may read it. A super user sees it.");
  const rows = [...a.holds].reverse();
  const all = app.local.allHolds || rows.length <= 30;
  return [
    h("p", { class: "soft" }, `It begins at ${time(a.beginsAt, app.now())} (${zone(app.now())}), ${begins[a.beginsWhy] ?? visible(a.beginsWhy)}. What happened before, member ${a.member} did not see.`,
      a.truncated ? " There are older holds than those below." : ""),
    table({
      caption: "Who held this lock, the newest first", rows: all ? rows : rows.slice(0, 30), rowKey: (x) => `${x.node} ${x.fromAt}`,
      empty: "Nobody has held it since then.",
      columns: [
        { name: "Holder", class: "break", cell: (x) => who(app, x.session, x) },
        { name: "From", class: "n", cell: (x) => [x.fromExact ? "" : "before ", time(x.fromAt, app.now())] },
        { name: "To", class: "n", cell: (x) => (x.toAt ? time(x.toAt, app.now()) : dash) },
        { name: "Held", class: "n", cell: (x) => `${x.fromExact ? "" : "> "}${x.toAt ? millis(x.heldMs) : duration(app.now() - Date.parse(x.fromAt))}` },
        { name: "Waited", class: "n", cell: (x) => millis(x.waitedMs) },
        { name: "End", class: "break", cell: (x) => ending(app, x) },
        { name: "Token", class: "n mono", cell: (x) => x.token ?? dash },
      ],
    }),
    all ? null : h("p", {}, h("button", { type: "button", class: "button", onclick: () => { app.local.allHolds = true; app.draw(); } }, `Show all ${count(rows.length)}`)),
    a.quit?.length ? h("details", {}, h("summary", {}, `${plural(a.quit.length, "contender")} left before they held it.`),
      h("ul", { class: "waits" }, [...a.quit].reverse().slice(0, 30).map((q) => h("li", {}, who(app, q.session, q),
        ` waited ${millis(Date.parse(q.toAt) - Date.parse(q.queuedAt))}, until ${time(q.toAt, app.now())}`)))) : null,
  ];
}
