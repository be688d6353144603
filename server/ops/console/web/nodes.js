// The tree of nodes, read when it is opened, and one node with its Stat, ACL and data.

import { h } from "./dom.js";
import { bytes, count, decode, hex, plural, text, time, visible } from "./format.js";
import { badge, facts, sentence, switcher } from "./parts.js";

const pageSize = 100;

export const title = () => "Nodes";
// Only beats are streamed here: they say when something has changed.
export const stream = () => [null, {}];

// enter is called when the view is opened: the tree is opened down to the node that is to be shown.
export function enter(app) {
  app.local.open = new Map(); // path -> {children, total, next, error}
  app.local.path = null;
  open(app, "/");
}

export function render(app) {
  const path = app.params.path || "/";
  if (app.local.path !== path) select(app, path);
  follow(app);
  return h("div", { class: "split" },
    h("section", { class: "card tree-card", "aria-labelledby": "tree-h" },
      h("div", { class: "card-head" }, h("h2", { id: "tree-h" }, "Tree"),
        h("button", { type: "button", class: "button", onclick: () => refresh(app) }, "Read again")),
      goTo(app, path), tree(app, path)),
    h("section", { class: "card node-card", "aria-labelledby": "node-h" }, detail(app, path)));
}

function goTo(app, path) {
  return h("form", { class: "goto", onsubmit: (e) => { e.preventDefault(); const to = e.target.elements.path.value.trim(); if (to.startsWith("/")) app.go("nodes", { path: to }); } },
    h("label", {}, h("span", {}, "Path"), h("input", { name: "path", value: path, autocomplete: "off", spellcheck: "false" })),
    h("button", { type: "submit", class: "button" }, "Go"));
}

// --- Requests

function parents(path) {
  const out = ["/"];
  const parts = path.split("/").slice(1, -1);
  let at = "";
  for (const p of parts) out.push((at += `/${p}`));
  return out;
}

function select(app, path) {
  app.local.path = path;
  app.local.node = null;
  app.local.error = null;
  for (const p of parents(path)) if (!app.local.open.has(p)) open(app, p);
  read(app, path);
}

async function read(app, path) {
  const local = app.local;
  local.readZxid = app.live.beat?.zxid;
  try {
    const node = await app.live.get("node", { path, bytes: local.bytes ?? 65536 });
    if (local.path !== path) return;
    const before = local.node;
    local.node = node;
    local.error = null;
    if (before && before.stat.pzxid !== node.stat.pzxid && local.open.has(path)) open(app, path);
  } catch (err) {
    if (local.path !== path) return;
    local.node = null;
    local.error = err.message;
  }
  app.draw();
}

// open reads the children of a node; with after, those that follow.
async function open(app, path, after) {
  const local = app.local;
  const before = local.open.get(path) ?? { children: [], total: 0, next: null };
  local.open.set(path, { ...before, reading: true });
  app.draw();
  try {
    const limit = after ? pageSize : Math.min(1000, Math.max(pageSize, before.children.length));
    const answer = await app.live.get("children", { path, after, limit });
    const children = after ? [...before.children, ...answer.children] : answer.children;
    if (local.open.has(path)) local.open.set(path, { children, total: answer.total, next: answer.next });
  } catch (err) {
    if (local.open.has(path)) local.open.set(path, { ...before, error: err.message });
  }
  app.draw();
}

// follow reads the node again when the member has applied something since, with a beat.
function follow(app) {
  const zxid = app.live.beat?.zxid;
  if (!zxid || app.local.readZxid === zxid) return;
  if (app.local.readZxid === undefined) { app.local.readZxid = zxid; return; }
  read(app, app.local.path);
}

function refresh(app) {
  for (const path of app.local.open.keys()) open(app, path);
  read(app, app.local.path);
}

// --- The tree

const join = (path, name) => (path === "/" ? `/${name}` : `${path}/${name}`);

// tree is one list of the nodes that can be seen, with levels, as screen readers expect of a tree.
function tree(app, selected) {
  const rows = [];
  const add = (path, name, info, level, at, of) => {
    const state = app.local.open.get(path);
    rows.push({ path, name, info, level, at, of, state });
    if (!state) return;
    state.children.forEach((c, i) => add(join(path, c.name), c.name, c, level + 1, i + 1, state.total));
    if (state.error) rows.push({ path, note: sentence(state.error), level: level + 1 });
    else if (state.next) rows.push({ path, more: state, level: level + 1, at: state.children.length + 1, of: state.total });
  };
  add("/", "/", { children: 1 }, 1, 1, 1);
  const focusable = rows.some((r) => r.path === selected && !r.more && !r.note) ? selected : "/";
  return h("ul", { class: "tree", role: "tree", "aria-label": "Nodes", onkeydown: (e) => keys(app, e) }, rows.map((r) => row(app, r, selected, focusable)));
}

function row(app, r, selected, focusable) {
  const indent = { "padding-left": `${(r.level - 1) * 16 + 6}px` };
  if (r.note) return h("li", { key: `! ${r.path}`, role: "none", class: "soft", style: indent }, r.note);
  if (r.more) {
    const left = r.more.total - r.more.children.length;
    return h("li", { key: `+ ${r.path}`, role: "treeitem", class: "more", "aria-level": r.level, tabindex: "-1", style: indent, "data-more": r.path,
      onclick: () => open(app, r.path, r.more.next) }, r.more.reading ? "Reading…" : `Show more (${count(left)} left)`);
  }
  const leaf = r.info.children === 0;
  return h("li", {
    key: r.path, role: "treeitem", "aria-level": r.level, "aria-selected": String(r.path === selected), "aria-posinset": r.at, "aria-setsize": r.of,
    "aria-expanded": leaf ? null : String(Boolean(r.state)), tabindex: r.path === focusable ? "0" : "-1", "data-path": r.path, style: indent,
    onclick: (e) => { if (e.target.closest(".twist")) toggle(app, r.path); else app.go("nodes", { path: r.path }); },
  }, h("span", { class: leaf ? "twist none" : "twist", "aria-hidden": "true" }, leaf ? "" : r.state ? "▾" : "▸"),
  h("span", { class: "node-name" }, visible(r.name)),
  r.info.ephemeral ? h("span", { class: "tag" }, "ephemeral") : null,
  r.info.children > 0 && r.path !== "/" ? h("span", { class: "soft n" }, ` ${count(r.info.children)}`) : null);
}

function toggle(app, path) {
  if (app.local.open.has(path)) app.local.open.delete(path);
  else open(app, path);
  app.draw();
}

// keys moves in the tree with the arrow keys, as everywhere.
function keys(app, e) {
  const items = [...e.currentTarget.querySelectorAll("[role=treeitem]")];
  const at = items.indexOf(document.activeElement);
  if (at < 0) return;
  const item = items[at], path = item.dataset.path;
  const focus = (to) => { if (to) { items.forEach((i) => (i.tabIndex = -1)); to.tabIndex = 0; to.focus(); } };
  const level = Number(item.getAttribute("aria-level"));
  const actions = {
    ArrowDown: () => focus(items[at + 1]),
    ArrowUp: () => focus(items[at - 1]),
    Home: () => focus(items[0]),
    End: () => focus(items.at(-1)),
    ArrowRight: () => { if (item.getAttribute("aria-expanded") === "false") toggle(app, path); else if (item.getAttribute("aria-expanded") === "true") focus(items[at + 1]); },
    ArrowLeft: () => {
      if (item.getAttribute("aria-expanded") === "true") toggle(app, path);
      else focus(items.slice(0, at).findLast((i) => Number(i.getAttribute("aria-level")) < level));
    },
    Enter: () => item.click(),
    " ": () => item.click(),
  };
  if (!actions[e.key]) return;
  e.preventDefault();
  actions[e.key]();
}

// --- One node

function detail(app, path) {
  const n = app.local.node;
  const heading = h("h2", { id: "node-h", class: "break" }, visible(path));
  if (!n) return [heading, h("p", { class: "empty" }, app.local.error ? sentence(app.local.error) : "Reading…")];
  const s = n.stat, zxid = (z) => h("span", { class: "mono" }, z);
  return [
    heading,
    h("p", {}, badge("plain", n.type), n.lock ? [" ", h("a", { href: app.link("lock", { path: n.lock }) }, "Part of a lock")] : null,
      s.ephemeralOwner !== "0x0" ? [" of ", h("a", { class: "mono", href: app.link("session", { id: s.ephemeralOwner }) }, s.ephemeralOwner)] : null),
    data(app, n),
    h("h3", {}, "Stat"),
    facts([["Created", [time(s.createdAt, app.now()), " in ", zxid(s.czxid)]], ["Data changed", [time(s.modifiedAt, app.now()), " in ", zxid(s.mzxid)]],
      ["Children changed in", zxid(s.pzxid)], ["Version", count(s.version)], ["Child version", count(s.cversion)], ["ACL version", count(s.aversion)],
      ["Children", count(s.numChildren)], ["Data", bytes(s.dataLength)], ["Watches here", count(n.watches)]]),
    h("h3", {}, "ACL"),
    n.acl?.length ? h("ul", { class: "paths mono" }, n.acl.map((a) => h("li", {}, `${visible(a.scheme)}:${visible(a.id)} ${a.perms}`))) : h("p", { class: "empty" }, "May not be read."),
  ];
}

function data(app, n) {
  if (n.dataRefused || !n.data) return h("p", { class: "empty" }, "The ACL does not permit to read the data.");
  if (n.data.bytes === 0) return h("p", { class: "empty" }, "No data.");
  const raw = decode(n.data.base64);
  const forms = [["text", "Text"], ...(n.data.is === "json" && !n.data.truncated ? [["json", "JSON"]] : []), ["hex", "Hex"]];
  const fits = { json: "json", text: "text", binary: "hex" }[n.data.is] ?? "text";
  let form = app.local.form ?? fits;
  if (!forms.some(([f]) => f === form)) form = fits === "json" ? "text" : fits;
  return [
    h("div", { class: "card-head" }, h("h3", {}, "Data"), switcher("Show data as", forms, form, (f) => { app.local.form = f; app.draw(); })),
    h("pre", { class: "data", tabindex: "0", "aria-label": "Data", role: "region" }, shown(raw, form, app.width < 560 ? 8 : 16)),
    n.data.truncated ? h("p", { class: "soft" }, `The first ${bytes(raw.length)} of ${bytes(n.data.bytes)}. `,
      raw.length < 1048576 ? h("button", { type: "button", class: "button", onclick: () => { app.local.bytes = 1048576; read(app, app.local.path); } }, "Show up to 1 MiB") : null) : null,
  ];
}

function shown(raw, form, width) {
  if (form === "hex") return hex(raw.subarray(0, 65536), width) + (raw.length > 65536 ? `\n${plural(raw.length - 65536, "more byte")}` : "");
  const words = text(raw);
  if (form === "json") {
    try { return visibleLines(JSON.stringify(JSON.parse(words), null, 2)); } catch { /* as text */ }
  }
  return visibleLines(words);
}

// visibleLines leaves line ends and tabs as they are.
function visibleLines(words) {
  return words.split(/(\r?\n|\t)/).map((part) => (/^(\r?\n|\t)$/.test(part) ? part : visible(part))).join("");
}

