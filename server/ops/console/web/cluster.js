// The cluster: who leads, who makes the majority, the number that may still fail, and the figures
// of each member.

import { h } from "./dom.js";
import { bytes, count, dash, duration, millis, plural, time, visible } from "./format.js";
import { badge, facts, table, waiting } from "./parts.js";

export const title = () => "Cluster";
export const stream = () => ["cluster", {}];

export function render(app) {
  const v = app.live.view;
  if (!v) return waiting(app);
  const members = [...v.members].sort((a, b) => a.id - b.id);
  return [
    h("p", { class: "lead", id: "summary" }, summary(v)),
    h("section", { class: "card picture-card", "aria-labelledby": "picture-h" },
      h("h2", { id: "picture-h" }, "Majority"),
      h("div", { class: "ring-row" }, ring(v, members), legend(v, members))),
    h("section", { "aria-labelledby": "members-h" }, h("h2", { id: "members-h" }, "Members"), memberTable(app, v, members)),
    h("section", { "aria-labelledby": "state-h" }, h("h2", { id: "state-h" }, "State"), state(v)),
    h("section", { "aria-labelledby": "changes-h" }, h("h2", { id: "changes-h" }, "Changes of leader"), changes(app, v)),
  ];
}

// summary describes the picture in sentences.
function summary(v) {
  if (v.standalone) return "This member is alone: there is no other one that could continue without it.";
  const leads = v.leader ? `Member ${v.leader} leads, in term ${v.term}. ` : "No member leads. ";
  const up = v.votersUp === v.voters ? `All ${v.voters} voters answer. ` : `${v.votersUp} of ${v.voters} voters ${v.votersUp === 1 ? "answers" : "answer"}. `;
  const behind = v.votersReady < v.votersUp ? `${v.votersUp - v.votersReady} of them ${v.votersUp - v.votersReady === 1 ? "has" : "have"} not caught up. ` : "";
  const paused = v.members.filter((m) => m.pausedPart >= pausedMuch).map((m) => `Member ${m.id} did not run for ${Math.round(m.pausedPart * 100)} % of the last minutes.`);
  return [leads + up + behind + fate(v), ...paused].join(" ");
}

function fate(v) {
  if (v.mayFail < 0) return "There is no majority: nothing can be written.";
  if (v.mayFail === 0) return "No further one may fail.";
  return v.mayFail === 1 ? "One may still fail." : `${v.mayFail} may still fail.`;
}

const isVoter = (m) => m.role === "participant";

// tone is how a member is drawn.
function tone(m) {
  if (!m.up) return "down";
  if (m.state === "leader" || m.state === "standalone") return "leader";
  if (m.state === "follower") return "follower";
  return m.state === "observer" ? "observer" : "looking";
}

// ring draws the voters on a circle, the leader connected with those that follow it, and observers
// beside it.
function ring(v, members) {
  const voters = members.filter(isVoter), observers = members.filter((m) => !isVoter(m));
  const radius = voters.length === 1 ? 0 : voters.length <= 3 ? 84 : 100;
  const at = new Map();
  voters.forEach((m, i) => {
    const a = -Math.PI / 2 + (i * 2 * Math.PI) / voters.length;
    at.set(m.id, [radius * 1.15 * Math.cos(a), radius * Math.sin(a)]);
  });
  observers.forEach((m, i) => at.set(m.id, [radius * 1.15 + 96, (i - (observers.length - 1) / 2) * 74]));
  const xs = [...at.values()].map((p) => p[0]), ys = [...at.values()].map((p) => p[1]);
  const left = Math.min(...xs) - 46, top = Math.min(...ys) - 58;
  const width = Math.max(...xs) + 46 - left, height = Math.max(...ys) + 44 - top;
  const leader = members.find((m) => m.id === v.leader && m.up);
  return h("svg", {
    class: "ring", viewBox: `${left} ${top} ${width} ${height}`, role: "img", "aria-label": `Picture: ${summary(v)} ${members.map(words).join(" ")}`,
    style: { "max-width": `${width * 1.1}px` },
  }, members.filter((m) => leader && m !== leader).map((m) => spoke(at.get(leader.id), at.get(m.id), m)),
  members.map((m) => disc(at.get(m.id), m, v)));
}

function words(m) {
  const lag = m.lagEntries ? `, ${plural(m.lagEntries, "entry", "entries")} behind` : "";
  return `Member ${m.id}${m.self ? " (this one)" : ""}: ${m.state}${lag}.`;
}

function spoke([x1, y1], [x2, y2], m) {
  const label = m.up && m.lagEntries > 0 ? `−${count(m.lagEntries)}` : "";
  return h("g", { key: `s${m.id}`, class: `spoke ${tone(m)}` },
    h("line", { x1, y1, x2, y2 }),
    label ? h("text", { x: (x1 + x2) / 2, y: (y1 + y2) / 2 - 4, "text-anchor": "middle" }, label) : null);
}

function disc([x, y], m, v) {
  const r = isVoter(m) ? 31 : 21;
  return h("g", { key: `m${m.id}`, class: `disc ${tone(m)}${m.self ? " self" : ""}`, "data-member": m.id, "data-state": m.state },
    h("circle", { class: "plate", cx: x, cy: y, r: r + 7 }),
    h("circle", { class: "body", cx: x, cy: y, r }),
    h("text", { x, y: y + (isVoter(m) ? 3 : 5), class: "number", "text-anchor": "middle" }, m.id),
    isVoter(m) ? h("text", { x, y: y + 17, class: "role", "text-anchor": "middle" }, m.up ? short(m.state) : "down") : null,
    m.up ? null : h("path", { class: "cross", d: `M${x + r * 0.55} ${y - r * 0.95}l9 9m0 -9l-9 9` }),
    m.id === v.leader && m.up ? h("path", { class: "crown", d: `M${x - 10} ${y - r - 7}l-3 -11l7 5l6 -8l6 8l7 -5l-3 11z` }) : null);
}

const short = (state) => ({ follower: "follows", leader: "leads", looking: "looking", "no answer": "down", standalone: "alone" })[state] ?? state;

// legend has the same in figures, with the voters as a tally at which the majority is marked.
function legend(v, members) {
  const voters = members.filter(isVoter);
  const cells = [...voters].sort((a, b) => Number(b.up) - Number(a.up) || a.id - b.id);
  return h("div", { class: "legend" },
    h("p", { class: "big" }, `${count(v.votersUp)} of ${count(v.voters)}`, h("span", { class: "soft" }, " voters answer")),
    h("div", { class: "tally", role: "img", "aria-label": `${v.votersUp} of ${v.voters} voters answer, ${v.majority} make a majority` },
      cells.map((m, i) => h("span", { key: m.id, class: `${m.up ? "up" : "out"}${i === v.majority - 1 ? " mark" : ""}` }, m.id))),
    h("p", {}, badge(v.mayFail < 0 ? "bad" : v.mayFail === 0 ? "doubt" : "good", fate(v))),
    h("p", { class: "soft small" }, `The bar marks the majority, ${plural(v.majority, "voter")}.`,
      members.some((m) => m.self) ? ` Dotted: member ${members.find((m) => m.self).id}, which shows this.` : ""));
}

function memberTable(app, v, members) {
  return table({
    caption: "The members of the cluster", rows: members, rowKey: (m) => m.id, rowClass: (m) => (m.up ? null : "out"),
    columns: [
      { name: "Member", cell: (m) => [name(m), m.self ? h("span", { class: "soft" }, " this one") : null] },
      { name: "Role", cell: (m) => [badge(badgeTone(m), m.state), isVoter(m) || m.role === m.state ? null : h("span", { class: "soft" }, ` ${m.role}`),
        m.joining ? h("span", { class: "soft" }, " new disk, not counted yet") : null,
        m.up && m.readiness?.startsWith("not ready") ? h("span", { class: "soft" }, visible(` ${m.readiness}`)) : null] },
      { name: "Clients at", class: "mono", cell: (m) => visible(m.clients ?? dash) },
      { name: "Applied", class: "n", cell: (m) => count(m.appliedIndex) },
      { name: "Lag", class: "n", cell: (m) => count(m.lagEntries) },
      { name: "Heard leader", class: "n", cell: (m) => (m.leaderHeardMs == null ? dash : `${millis(m.leaderHeardMs)} ago`) },
      { name: "Did not run, longest", class: "n", cell: pauses },
      { name: "Log", class: "n", cell: (m) => bytes(m.logBytes) },
      { name: "Snapshot", class: "n", cell: (m) => bytes(m.snapshotBytes) },
      { name: "Fsync, longest", class: "n", cell: (m) => (m.fsyncMs == null ? dash : `${millis(m.fsyncMs)}, ${millis(m.fsyncMaxMs)}`) },
      { name: "Leases", class: "n", cell: (m) => count(m.leases) },
      { name: "Clients", class: "n", cell: (m) => count(m.connections) },
      { name: "Up for", class: "n", cell: (m) => (m.uptimeMs === null || m.uptimeMs === undefined ? dash : duration(m.uptimeMs)) },
    ],
  });
}

// name is a member's number, as a link to the same view of its own console if it serves HTTP.
function name(m) {
  if (m.self || !m.http) return h("strong", {}, m.id);
  return h("a", { href: `${location.protocol}//${m.http}/${location.hash}`, "aria-label": `The console of member ${m.id}` }, h("strong", {}, m.id));
}

// pausedMuch is from which part of the time on it is bad that a member did not run.
const pausedMuch = 0.02;

// pauses is the part of the last minutes in which a member did not run: stopped, or without a
// processor.
function pauses(m) {
  if (m.pausedPart == null) return dash;
  const words = `${m.pausedPart < 0.001 ? "0" : (m.pausedPart * 100).toFixed(m.pausedPart < 0.1 ? 1 : 0)} %, ${millis(m.pauseMaxMs)}`;
  return m.pausedPart >= pausedMuch ? badge("bad", words) : words;
}

const badgeTone = (m) => ({ down: "bad", leader: "strong", follower: "good", observer: "plain", looking: "doubt" })[tone(m)];

function state(v) {
  const s = v.state ?? {};
  const self = v.members.find((m) => m.self);
  return facts([["Nodes", count(s.nodes)], ["Ephemerals", count(s.ephemerals)], ["Sessions", count(s.sessions)], ["Data", bytes(s.dataBytes)],
    ["Newest update", h("span", { class: "mono" }, v.zxid)], ["Version", self?.build ? visible(self.build) : null],
    ["Cluster", self?.cluster ? h("span", { class: "mono" }, visible(self.cluster)) : null],
    ["Disk of this member", self?.disk ? h("span", { class: "mono" }, visible(self.disk)) : null],
    ["Disks replaced", self?.disksReplaced ? count(self.disksReplaced) : null]]);
}

// The causes, as the member names them, and as a sentence.
const causes = {
  start: "this member started", "process ended": "the leader’s process ended", timeout: "nothing was heard of the leader",
  transfer: "the leadership was transferred", stopped: "the leader was shut down", "lost majority": "this member led and lost its majority",
  unknown: "the cause is not known",
};

function changes(app, v) {
  if (!v.changes?.length) return h("p", { class: "empty" }, "None since this member started.");
  return h("ol", { class: "log" }, v.changes.map((c) => h("li", { key: `${c.at} ${c.term}` },
    h("time", { datetime: c.at }, time(c.at, app.now())),
    h("span", {}, h("strong", {}, c.leader ? `Member ${c.leader}` : "No leader"), c.before ? ` after member ${c.before}` : "",
      `: ${causes[c.cause] ?? visible(c.cause)}.`,
      h("span", { class: "soft" }, ` Term ${c.term}${c.gapMs ? `, ${millis(c.gapMs)} without a leader` : ""}`)))));
}
