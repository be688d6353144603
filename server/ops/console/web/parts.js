// Pieces that several views are made of.

import { h } from "./dom.js";
import { count, middle, session as shortSession, visible } from "./format.js";

// place is a path, with its last part emphasised, as a link to a lock or a node.
export function place(app, path, view = "lock", most = 80) {
  const shown = visible(middle(path, most));
  const cut = shown.lastIndexOf("/") + 1;
  return h("a", { class: "path", href: app.link(view, { path }), title: path.length > most ? visible(path) : null },
    cut > 1 ? h("span", { class: "soft" }, shown.slice(0, cut)) : shown.slice(0, cut), shown.slice(cut));
}

// who is a session, as a link: by the name of its program if that is known, with the address of its
// client.
export function who(app, id, more = {}) {
  const name = more.who && visible(middle(more.who, 60));
  const words = [more.address, name && shortSession(id)].filter(Boolean);
  return h("span", { class: "who" },
    h("a", { class: name ? "name" : "mono", href: app.link("session", { id }), title: id }, name || shortSession(id)),
    words.length ? h("span", { class: "soft" }, ` ${words.join(" · ")}`) : null,
    more.note ? h("span", { class: "note" }, ` “${visible(middle(more.note, 120))}”`) : null);
}

// badge is a word with a colour: good, bad, doubt, plain.
export function badge(tone, ...words) {
  return h("span", { class: `badge ${tone}` }, words);
}

// facts is a list of names with values; a value that is null is left out.
export function facts(pairs) {
  return h("dl", { class: "facts" }, pairs.filter(([, value]) => value !== null && value !== undefined)
    .map(([name, value]) => h("div", { key: name }, h("dt", {}, name), h("dd", {}, value))));
}

// table draws rows. A column has a name, a cell function, and maybe a class and a key to sort by.
// On a phone each row becomes a card, for which every cell has its column's name.
export function table({ caption, columns, rows, rowKey, sort, order, onSort, rowClass, empty }) {
  if (rows.length === 0) return h("p", { class: "empty" }, empty ?? "Nothing.");
  return h("div", { class: "table" }, h("table", { role: "table" },
    h("caption", { class: "unseen" }, caption),
    h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, columns.map((c) => header(c, sort, order, onSort)))),
    h("tbody", { role: "rowgroup" }, rows.map((row, i) => h("tr", { role: "row", key: rowKey ? rowKey(row) : i, class: rowClass?.(row) || null },
      columns.map((c, at) => h(at === 0 ? "th" : "td", {
        role: at === 0 ? "rowheader" : "cell", scope: at === 0 ? "row" : null, class: c.class ?? null, "data-name": c.name,
      }, c.cell(row))))))));
}

function header(column, sort, order, onSort) {
  const sorted = column.sort && column.sort === sort;
  const props = {
    role: "columnheader", scope: "col", class: [column.class, column.sort && onSort ? "sortable" : ""].filter(Boolean).join(" ") || null,
    "aria-sort": sorted ? (order === "asc" ? "ascending" : "descending") : null,
  };
  if (!column.sort || !onSort) return h("th", props, column.name);
  return h("th", props, h("button", {
    type: "button", onclick: () => onSort(column.sort, sorted && order === "desc" ? "asc" : sorted ? "desc" : column.first ?? "desc"),
  }, column.name, h("span", { class: "arrow", "aria-hidden": "true" }, sorted ? (order === "asc" ? "↑" : "↓") : "↕")));
}

// pager goes through a long list that the member gives in pages.
export function pager({ offset, limit, matched, label, onPage }) {
  if (matched <= limit && offset === 0) return null;
  const last = Math.max(0, Math.floor((matched - 1) / limit) * limit);
  const to = (at) => ({ type: "button", class: "button", onclick: () => onPage(at), disabled: at < 0 || at > last || at === offset });
  return h("nav", { class: "pager", "aria-label": label },
    h("button", { ...to(0), "aria-label": "First page" }, "« First"),
    h("button", { ...to(offset - limit), "aria-label": "Page before" }, "‹ Before"),
    h("span", {}, `${count(matched ? offset + 1 : 0)} to ${count(Math.min(offset + limit, matched))} of ${count(matched)}`),
    h("button", { ...to(offset + limit), "aria-label": "Next page" }, "Next ›"),
    h("button", { ...to(last), "aria-label": "Last page" }, "Last »"));
}

// search is a field; its text becomes a parameter of the page a moment after the last key.
export function search(app, { name, label, placeholder }) {
  return h("label", { class: "search" }, h("span", {}, label), h("input", {
    type: "search", name, placeholder, value: app.params[name] ?? "", autocomplete: "off", spellcheck: "false",
    oninput: (e) => {
      const value = e.target.value;
      clearTimeout(app.local.searching);
      app.local.searching = setTimeout(() => app.go(app.name, { ...app.params, [name]: value, offset: 0 }, true), 250);
    },
  }));
}

// choose is a list to choose one of; its value becomes a parameter of the page.
export function choose(app, { name, label, options }) {
  return h("label", { class: "choose" }, h("span", {}, label), h("select", {
    name, value: app.params[name] ?? "", onchange: (e) => app.go(app.name, { ...app.params, [name]: e.target.value, offset: 0 }, true),
  }, options.map(([value, words]) => h("option", { key: value, value }, words))));
}

// switcher is a row of buttons of which one is pressed.
export function switcher(label, options, chosen, onChoose) {
  return h("div", { class: "switcher", role: "group", "aria-label": label }, options.map(([value, words]) =>
    h("button", { key: value, type: "button", "aria-pressed": String(value === chosen), onclick: () => onChoose(value) }, words)));
}

// waiting is shown until the first answer, and when there is none.
export function waiting(app) {
  const err = app.live.viewError;
  if (err) return h("p", { class: "empty" }, sentence(err.error ?? "This cannot be shown."));
  return h("p", { class: "empty" }, app.live.status === "gone" ? sentence(app.live.reason) : "Reading…");
}

// sentence makes a message a sentence.
export function sentence(text) {
  const t = visible(String(text ?? ""));
  return t ? t[0].toUpperCase() + t.slice(1) + (/[.!?]$/.test(t) ? "" : ".") : "";
}

// kindWords is a lock's kind for people, with how much of a semaphore is held.
export function kindWords(lock) {
  switch (lock.kind) {
    case "readwrite": return lock.holders?.length && lock.holders.every((x) => x.mode === "read")
      ? `read (${count(lock.held)})` : lock.held ? "write" : "read/write";
    case "semaphore": return lock.leases ? `semaphore, ${count(lock.held)} of ${count(lock.leases)}` : `semaphore, ${count(lock.held)} held`;
    default: return lock.kind;
  }
}

export const troubleNames = {
  deadlock: "deadlock", orphan: "node left behind?", long: "held for long", herd: "many watches", hot: "many wait", expiring: "about to expire",
  reconnecting: "reconnecting", twoHolders: "two holders?",
};

// toneOf is how bad a trouble is.
export const toneOf = (kind) => (kind === "deadlock" || kind === "twoHolders" ? "bad" : "doubt");

// sortedBy keeps the sort order of a list in the page's address.
export function sortedBy(app, sort, order) {
  app.go(app.name, { ...app.params, sort, order, offset: 0 }, true);
}
