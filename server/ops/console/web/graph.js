// The wait-for graph of a deadlock: sessions as boxes, the cycle on a circle, those that wait for it
// outside. The list beside it has the same in words.

import { h } from "./dom.js";
import { middle, session as shortSession, visible } from "./format.js";

const boxWidth = 196, boxHeight = 40;
let pictures = 0;

export function drawDeadlock(d) {
  d.id ??= ++pictures; // of its arrow heads, which need a name in the document
  const cycle = inOrder(d);
  const outside = [...new Set(d.edges.filter((e) => !e.cycle).flatMap((e) => [e.waiter, e.holder]).filter((s) => !cycle.includes(s)))].slice(0, 8);
  const radius = Math.max(96, (cycle.length * (boxWidth + 50)) / (2 * Math.PI));
  const far = radius + 104;
  const start = cycle.length === 2 ? -0.5 : -0.25; // two are beside each other, more begin at the top
  const places = new Map();
  cycle.forEach((s, i) => places.set(s, onCircle(radius, start + i / cycle.length)));
  outside.forEach((s, i) => {
    // Beside the session that it waits for, if that is on the circle.
    const first = d.edges.find((e) => e.waiter === s && cycle.includes(e.holder));
    const base = start + (first ? cycle.indexOf(first.holder) / cycle.length : i / outside.length);
    const same = outside.slice(0, i).filter((o) => d.edges.find((e) => e.waiter === o && first && e.holder === first.holder)).length;
    places.set(s, onCircle(far, base + (same % 2 ? 1 : -1) * 0.09 * Math.ceil((same + 1) / 2)));
  });
  const xs = [...places.values()].map((p) => p[0]), ys = [...places.values()].map((p) => p[1]);
  const aside = cycle.length > 2 ? 92 : 12; // for the names of paths
  const left = Math.min(...xs) - boxWidth / 2 - aside, top = Math.min(...ys) - boxHeight / 2 - 46;
  const width = Math.max(...xs) + boxWidth / 2 + aside - left, height = Math.max(...ys) + boxHeight / 2 + 46 - top;
  const shown = d.edges.filter((e) => places.has(e.waiter) && places.has(e.holder));
  return h("svg", {
    class: "graph", viewBox: `${left} ${top} ${width} ${height}`, role: "img", style: { "max-width": `${width}px` },
    "aria-label": `Wait-for graph: ${shown.filter((e) => e.cycle).map((e) => `${label(d, e.waiter)} waits for ${label(d, e.holder)} at ${visible(e.path)}`).join("; ")}`,
  }, h("defs", {}, ["cycle", "other"].map((kind) => h("marker", {
    id: `arrow-${kind}-${d.id}`, viewBox: "0 0 10 10", refX: 9, refY: 5, markerWidth: 7, markerHeight: 7, orient: "auto-start-reverse",
  }, h("path", { d: "M0 0L10 5L0 10z", class: `arrow ${kind}` })))),
  shown.map((e, i) => arrow(e, i, places, d)),
  [...places].map(([s, p]) => box(s, d.names?.[s], p, cycle.includes(s))));
}

const label = (d, s) => (d.names?.[s]?.who ? `${visible(d.names[s].who)} (${s})` : s);

// inOrder is the sessions of the cycle, each before the one it waits for.
function inOrder(d) {
  const next = new Map(d.edges.filter((e) => e.cycle).map((e) => [e.waiter, e.holder]));
  const out = [];
  for (let at = d.sessions[0]; at && !out.includes(at); at = next.get(at)) out.push(at);
  return [...out, ...d.sessions.filter((s) => !out.includes(s))];
}

function onCircle(radius, part) {
  const a = part * 2 * Math.PI;
  return [radius * 1.25 * Math.cos(a), radius * Math.sin(a)];
}

// box has the name of a session's program, and below it the address of its client and the session.
function box(s, more, [x, y], inCycle) {
  const name = more?.who && visible(middle(more.who, 26)), below = name ? [more.address, shortSession(s)].filter(Boolean).join(" ") : more?.address;
  return h("g", { key: s, class: `box${inCycle ? " cycle" : ""}` },
    h("rect", { x: x - boxWidth / 2, y: y - boxHeight / 2, width: boxWidth, height: boxHeight, rx: 7 }),
    h("text", { x, y: below ? y - 2 : y + 4.5, "text-anchor": "middle", class: name ? "name" : null }, name || shortSession(s)),
    below ? h("text", { x, y: y + 12, "text-anchor": "middle", class: "below" }, visible(middle(below, 30))) : null,
    h("title", {}, [more?.who && visible(more.who), s, more?.address].filter(Boolean).join(" · ")));
}

// arrow leads from one box to another, bent away from the middle of the picture; two between the
// same boxes bend to different sides.
function arrow(e, i, places, d) {
  const [x1, y1] = places.get(e.waiter), [x2, y2] = places.get(e.holder);
  const length = Math.hypot(x2 - x1, y2 - y1) || 1;
  let nx = (y2 - y1) / length, ny = -(x2 - x1) / length;
  const outward = nx * (x1 + x2) + ny * (y1 + y2);
  if (outward < -1) [nx, ny] = [-nx, -ny];
  const bend = e.cycle ? Math.min(54, length * 0.26) : 14;
  const cx = (x1 + x2) / 2 + nx * bend, cy = (y1 + y2) / 2 + ny * bend;
  const [sx, sy] = edgeOf(x1, y1, cx, cy), [tx, ty] = edgeOf(x2, y2, cx, cy);
  const kind = e.cycle ? "cycle" : "other";
  const side = Math.abs(nx) < 0.6 ? "middle" : nx > 0 ? "start" : "end";
  const lx = (sx + 2 * cx + tx) / 4 + nx * 10, ly = (sy + 2 * cy + ty) / 4 + ny * 12 + 4;
  return h("g", { key: `e${i}`, class: `edge ${kind}${e.why === "within" ? " within" : ""}` },
    h("path", { d: `M${sx} ${sy}Q${cx} ${cy} ${tx} ${ty}`, "marker-end": `url(#arrow-${kind}-${d.id})` }),
    e.cycle ? h("text", { x: lx, y: ly, "text-anchor": side }, visible(middle(e.path, 20))) : h("title", {}, visible(e.path)));
}

// edgeOf is where the line from a box's middle to a point leaves the box.
function edgeOf(x, y, toX, toY) {
  const dx = toX - x, dy = toY - y;
  const scale = Math.min((boxWidth / 2 + 4) / Math.abs(dx || 1e-9), (boxHeight / 2 + 4) / Math.abs(dy || 1e-9));
  return [x + dx * scale, y + dy * scale];
}
