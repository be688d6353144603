// The page: which view is shown, where it reads, and the messages around it.

import { h, patch } from "./dom.js";
import { Live } from "./live.js";
import { duration, plural, time, zone } from "./format.js";
import * as cluster from "./cluster.js";
import * as locks from "./locks.js";
import * as lock from "./lock.js";
import * as trouble from "./trouble.js";
import * as sessions from "./sessions.js";
import * as session from "./session.js";
import * as nodes from "./nodes.js";
import * as acts from "./acts.js";
import { Acting } from "./acting.js";

const views = { cluster, locks, lock, trouble, sessions, session, nodes, acts };
const tabs = [["cluster", "Cluster"], ["locks", "Locks"], ["trouble", "Trouble"], ["sessions", "Sessions"],
  ["nodes", "Nodes"], ["acts", "Acts"]];
// under says which tab a view belongs to that has none.
const under = { lock: "locks", session: "sessions" };
// explained says where the page is, below docs/, that explains a view.
const explained = { cluster: "cluster.html", locks: "locks.html", lock: "guarantees.html", trouble: "console.html#the-views",
  sessions: "console.html#the-views", session: "console.html#the-views", nodes: "operations.html",
  acts: "console.html#the-effect-of-an-act" };

const main = document.getElementById("main");
let drawing = false;

// contentWidth is how wide a view may be, in pixels.
function contentWidth() {
  const style = getComputedStyle(main);
  return main.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
}

const live = new Live(() => draw());

// Arguments of views: the connection, the parameters in the page's address, and a few functions.
const app = {
  live,
  name: "", params: {}, local: {},
  width: contentWidth(),
  whoami: null,
  now: () => live.now(),
  draw, say, go, link,
  acting: null,
  // identify asks the member for the rights of these credentials.
  async identify() {
    try { app.whoami = await live.get("whoami"); } catch (err) { app.whoami = { error: err.message }; }
    draw();
    return app.whoami;
  },
};
app.acting = new Acting(app);

// link is the address of a view. Parameters that are empty are left out.
function link(name, params = {}) {
  const query = new URLSearchParams();
  for (const [k, v] of Object.entries(params)) {
    if (v !== "" && v !== null && v !== undefined && v !== 0) query.set(k, v);
  }
  const text = query.toString();
  return `#/${name}${text ? `?${text}` : ""}`;
}

// go shows a view. With replace the address before is not kept in the browser's history.
function go(name, params, replace = false) {
  const to = link(name, params);
  if (!replace) { location.hash = to; return; }
  history.replaceState(null, "", to);
  route();
}

function route() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  const name = path in views ? path : "cluster";
  const params = Object.fromEntries(new URLSearchParams(query ?? ""));
  const changed = name !== app.name || (views[name].subject && params[views[name].subject] !== app.params[views[name].subject]);
  const first = app.name === "";
  app.name = name;
  app.params = params;
  if (changed) {
    app.local = {};
    patch(main, []);
    views[name].enter?.(app);
  }
  const [view, wants] = views[name].stream?.(app) ?? [null, {}];
  live.watch(view, wants);
  drawNow();
  main.dataset.view = name;
  if (changed && !first) {
    scrollTo(0, 0);
    main.querySelector("h1")?.focus({ preventScroll: true });
  }
}

// draw draws the page with the next frame, once however often it is called.
function draw() {
  if (drawing) return;
  drawing = true;
  const run = () => { if (drawing) drawNow(); };
  if (document.hidden) setTimeout(run, 200);
  else requestAnimationFrame(run);
}

function drawNow() {
  drawing = false;
  const view = views[app.name];
  const title = view.title(app);
  document.title = `${title} · lockkeeper`;
  patch(document.getElementById("nav"), navigation());
  patch(document.getElementById("member"), whereFrom());
  patch(document.getElementById("fresh"), freshness());
  patch(document.getElementById("banner"), banner());
  patch(main, [h("div", { class: "head" }, h("h1", { tabindex: "-1" }, title), view.aside?.(app), explanation()), view.render(app)]);
  app.acting.draw();
  listen();
}

// explanation is a link to the page that explains the view. It opens in a tab of its own, as this
// page would forget a login.
function explanation() {
  return h("a", { class: "explained", href: `docs/${explained[app.name]}`, target: "_blank", rel: "noopener" }, "About this view",
    h("span", { class: "unseen" }, ", in a new tab"));
}

function navigation() {
  const at = under[app.name] ?? app.name;
  const counts = Object.values(live.beat?.trouble ?? {}).reduce((a, b) => a + b, 0);
  return h("ul", {}, tabs.map(([name, label]) => h("li", { key: name },
    h("a", { href: link(name), "aria-current": name === at ? "page" : null }, label,
      name === "trouble" && counts > 0 ? h("span", { class: "count" }, counts > 999 ? "999+" : counts,
        h("span", { class: "unseen" }, counts === 1 ? " case" : " cases")) : null))));
}

function whereFrom() {
  const member = live.beat?.member ?? live.hello?.member;
  if (member === undefined) return [];
  const leads = live.beat?.leader ? (live.beat.leader === member ? ", leader" : `, leader is ${live.beat.leader}`) : "";
  return [`seen by member ${member}`, h("span", { class: "wide-only" }, leads)];
}

function freshness() {
  const words = { connecting: "connecting", live: "live", stale: "stale", cut: "cut off", gone: "no answer" };
  return h("span", { class: `fresh ${live.status}` }, h("span", { class: "dot", "aria-hidden": "true" }), words[live.status],
    live.beat ? h("span", { class: "soft at" }, time(live.beat.at, app.now()), " ", zone(app.now())) : null);
}

// banner warns of a view that is stale or incomplete.
function banner() {
  const member = live.beat ? `Member ${live.beat.member}` : "The member";
  if (live.status === "cut") {
    return h("div", { class: "banner bad" }, h("strong", {}, `${member} knows no leader. `),
      `What is shown was true ${duration(live.staleMs)} ago, and may have changed since on the other members.`);
  }
  if (live.status === "stale" || live.status === "gone") {
    return h("div", { class: "banner doubt" }, h("strong", {}, `${member} does not answer. `),
      live.beat ? `What is shown is ${duration(live.silentMs())} old. ` : "", "The page goes on trying",
      live.reason ? ` (${live.reason})` : "", ".");
  }
  return [];
}

// --- The screen reader

let saidStatus = "connecting", saidTrouble = null, saidTroubleMs = -Infinity;

// say has a screen reader say a sentence after the present one.
function say(text) {
  const box = document.getElementById("said");
  if (box.textContent !== text) box.textContent = text;
}

// listen says changes of the connection, and of the number of troubles, at most every 15 s.
function listen() {
  if (live.status !== saidStatus) {
    const words = { live: "The page is live.", stale: "The page is stale.", cut: "This member knows no leader.", gone: "The member does not answer." };
    if (words[live.status] && !(saidStatus === "connecting" && live.status === "live")) say(words[live.status]);
    saidStatus = live.status;
  }
  if (!live.beat) return;
  const counts = Object.values(live.beat.trouble ?? {}).reduce((a, b) => a + b, 0);
  if (saidTrouble === null) saidTrouble = counts;
  if (counts !== saidTrouble && performance.now() - saidTroubleMs > 15_000) {
    say(counts === 0 ? "There is no trouble any more." : `Trouble: ${plural(counts, "case")}.`);
    saidTrouble = counts;
    saidTroubleMs = performance.now();
  }
}

addEventListener("hashchange", route);
document.getElementById("skip").addEventListener("click", (e) => { e.preventDefault(); main.focus(); });
new ResizeObserver(() => {
  if (Math.abs(contentWidth() - app.width) > 1) { app.width = contentWidth(); draw(); }
}).observe(main);
setInterval(() => { if (!document.hidden) draw(); }, 1000); // durations grow
app.identify();
route();
