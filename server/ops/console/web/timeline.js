// The picture of a lock's history: holders as bars, the waiters below, and their number.

import { h } from "./dom.js";
import { count, duration, plural, session as shortSession, visible } from "./format.js";

const barHeight = 22, barGap = 4, waitHeight = 7, waitGap = 3, curveHeight = 44;
const mostLanes = 6, mostWaitLanes = 10;

// hue gives a session one of six colours: the same for as long as the page shows this lock.
function hue(hues, id) {
  if (!hues.has(id)) hues.set(id, hues.size % 6);
  return `c${hues.get(id)}`;
}

// lanes puts intervals into as few rows as they need, at most `most`; the rest is left out.
function lanes(intervals, most) {
  const ends = [];
  const placed = [];
  for (const it of [...intervals].sort((a, b) => a.from - b.from)) {
    let lane = ends.findIndex((end) => end <= it.from);
    if (lane < 0) lane = ends.length;
    if (lane >= most) continue;
    ends[lane] = it.to;
    placed.push({ ...it, lane });
  }
  return { placed, rows: ends.length, left: intervals.length - placed.length };
}

const ms = (at) => Date.parse(at);

// drawTimeline draws the last minutes of an answer of history and of the present queue.
export function drawTimeline({ answer, queue, now, minutes, width, hues }) {
  const from = now - minutes * 60_000, span = now - from;
  const x = (t) => Math.max(0, Math.min(width, ((t - from) / span) * width));
  const holds = lanes(answer.holds.filter((e) => !e.toAt || ms(e.toAt) > from)
    .map((e) => ({ e, from: ms(e.fromAt), to: e.toAt ? Math.max(ms(e.toAt), ms(e.fromAt)) : now })), mostLanes);
  const waits = lanes(waitsOf(answer, queue, now).filter((w) => w.to > from), mostWaitLanes);
  const top = 18;
  const waitsTop = top + Math.max(1, holds.rows) * (barHeight + barGap) + 14;
  const curveTop = waitsTop + Math.max(1, waits.rows) * (waitHeight + waitGap) + 16;
  const height = curveTop + curveHeight + 22;
  const begins = answer.beginsAt ? ms(answer.beginsAt) : from;
  return h("svg", { class: "timeline", width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": describe(answer, holds.placed, queue, minutes) },
    h("defs", {}, h("pattern", { id: "unseen-time", width: 7, height: 7, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
      h("line", { x1: 0, y1: 0, x2: 0, y2: 7, class: "hatch" }))),
    grid(from, now, width, height, minutes, x),
    begins > from ? before(x(begins), height, curveTop + curveHeight - 6) : null,
    label(0, 12, "held by"),
    holds.placed.map((p) => bar(p, top, x, hues)),
    label(0, waitsTop - 5, waits.left ? `waited (${plural(waits.left, "more")})` : "waited"),
    waits.placed.map((p, i) => h("rect", { key: `w${i}`, class: `wait ${hue(hues, p.session)}`, x: x(p.from), y: waitsTop + p.lane * (waitHeight + waitGap), width: Math.max(1.5, x(p.to) - x(p.from)), height: waitHeight, rx: 2 },
      h("title", {}, `${nameOf(p)} waited ${duration(p.to - p.from)}${p.quit ? ", and left" : ""}`))),
    curve(answer.waiters ?? [], curveTop, x, now, width, from));
}

// waitsOf are all that waited: those that hold or held, those that left, and those that wait now.
function waitsOf(answer, queue, now) {
  const out = [];
  for (const e of answer.holds) {
    if (e.queuedAt && e.waitedMs > 0) out.push({ ...e, from: ms(e.queuedAt), to: ms(e.fromAt) });
  }
  for (const q of answer.quit ?? []) out.push({ ...q, from: ms(q.queuedAt), to: ms(q.toAt), quit: true });
  for (const c of queue) {
    if (!c.held && !c.mayHold) out.push({ ...c, from: ms(c.queuedAt ?? c.createdAt), to: now });
  }
  return out;
}

// nameOf is the name of a contender.
const nameOf = (c) => [c.who || c.note, c.address, shortSession(c.session)].filter(Boolean).map(visible).join(" · ");

function label(x, y, words) {
  return h("text", { x, y, class: "label" }, words);
}

function grid(from, now, width, height, minutes, x) {
  const steps = [10, 15, 30, 60, 120, 300, 600, 1800, 3600].map((s) => s * 1000);
  const step = steps.find((s) => ((now - from) / s) * 74 <= width) ?? 7_200_000;
  const lines = [];
  for (let t = Math.ceil(from / step) * step; t <= now; t += step) {
    const at = x(t), d = new Date(t);
    const words = [d.getHours(), d.getMinutes(), ...(step < 60_000 ? [d.getSeconds()] : [])].map((n) => String(n).padStart(2, "0")).join(":");
    lines.push(h("g", { key: `t${t}` }, h("line", { class: "grid", x1: at, y1: 0, x2: at, y2: height - 16 }),
      at > 26 && at < width - 44 ? h("text", { x: at, y: height - 3, class: "label", "text-anchor": "middle" }, words) : null));
  }
  return [lines, h("text", { key: "now", x: width, y: height - 3, class: "label", "text-anchor": "end" }, "now")];
}

// before covers the time of which this member knows nothing.
function before(at, height, y) {
  return h("g", {}, h("rect", { class: "unseen-time", x: 0, y: 0, width: at, height: height - 16, fill: "url(#unseen-time)" }),
    at > 70 ? h("text", { x: at - 6, y, class: "label", "text-anchor": "end" }, at > 190 ? "not seen by this member" : "not seen") : null);
}

const endMarks = { expired: "✕", ended: "✕", deleted: "✕", closed: "◦" };

function bar(p, top, x, hues) {
  const { e } = p;
  const left = x(p.from), right = Math.max(left + 2, x(p.to)), y = top + p.lane * (barHeight + barGap);
  const room = Math.floor((right - left - 14) / 6.6);
  const name = visible(e.who || e.note || e.address || e.session || "");
  const bad = e.end === "expired" || e.end === "ended" || e.end === "deleted";
  const held = `${e.fromExact ? "" : "more than "}${duration(p.to - p.from)}`;
  return h("g", { key: `h${e.node} ${e.fromAt}`, class: `bar ${hue(hues, e.session)}${e.toAt ? "" : " open"}` },
    h("rect", { x: left, y, width: right - left, height: barHeight, rx: Math.min(4, (right - left) / 2) }),
    bad ? h("rect", { class: "bad-end", x: right - 3, y, width: 3, height: barHeight }) : null,
    room >= 4 ? h("text", { x: left + 7, y: y + 15 }, name.length > room ? `${name.slice(0, room - 1)}…` : name) : null,
    bad && right - left > 26 ? h("text", { class: "end-mark", x: right - 7, y: y + 15, "text-anchor": "end" }, endMarks[e.end]) : null,
    h("title", {}, `${nameOf(e)}: held for ${held}, ${e.end ?? "goes on"}`));
}

// curve is the number of waiters, as steps.
function curve(points, top, x, now, width, from) {
  let start = 0;
  for (const [t, n] of points) if (t <= from) start = n;
  const inside = points.filter(([t]) => t > from && t <= now);
  const most = Math.max(1, start, ...inside.map(([, n]) => n));
  const y = (n) => top + curveHeight - (n / most) * (curveHeight - 4);
  let d = `M0 ${top + curveHeight}V${y(start).toFixed(1)}`;
  for (const [t, n] of inside) d += `H${x(t).toFixed(1)}V${y(n).toFixed(1)}`;
  return h("g", { class: "curve" }, h("path", { d: `${d}H${width}V${top + curveHeight}Z` }),
    label(0, top - 3, `waiters, at most ${count(Math.max(start, ...inside.map(([, n]) => n), 0))}`));
}

// describe describes the picture in words; the tables below have all of it.
function describe(answer, placed, queue, minutes) {
  const waiting = queue.filter((c) => !c.held && !c.mayHold).length;
  const open = placed.filter((p) => !p.e.toAt).length;
  const bad = placed.filter((p) => ["expired", "ended", "deleted"].includes(p.e.end)).length;
  return `Timeline of the last ${plural(minutes, "minute")}: ${plural(placed.length, "hold")}, ${open ? "one goes on" : "none goes on"}` +
    `${bad ? `, ${bad} ended without a release` : ""}; ${plural(waiting, "contender")} ${waiting === 1 ? "waits" : "wait"} now. The tables below have the same.`;
}
