// The dialogue in which an act is confirmed: it announces the effect, wants the name typed, and
// shows the member's answer.

import { h, patch } from "./dom.js";
import { count, plural, visible } from "./format.js";
import { sentence } from "./parts.js";

export class Acting {
  constructor(app) {
    this.app = app;
    this.ask = null; // {heading, says, confirm, body}
    this.box = document.createElement("dialog");
    this.box.setAttribute("aria-labelledby", "act-h");
    this.box.addEventListener("close", () => { this.ask = null; this.draw(); });
    document.body.append(this.box);
  }

  breakLock(v, c) {
    this.open({
      heading: "Break this lock", confirm: v.lock.path, what: "the path of the lock",
      says: [`The node ${c.node} of session ${c.session} is deleted.`,
        v.lock.waiting ? "The next in the queue holds the lock at once." : "Nobody waits: the lock is free.",
        holderSees(c)],
      body: { act: "break", path: v.lock.path, node: c.node, token: c.token },
    });
  }

  endSession(v) {
    const s = v.session;
    this.open({
      heading: "End this session", confirm: s.session, what: "the id of the session",
      says: [`${v.ephemerals.total ? `Its ${plural(v.ephemerals.total, "ephemeral")} ${v.ephemerals.total === 1 ? "is" : "are"} deleted together` : "It has no ephemerals"}, and its connection is closed.`,
        "Its client learns that the session has expired as soon as it connects again. Until then, most libraries report that they are disconnected, and a program that does not look goes on."],
      body: { act: "end", session: s.session },
    });
  }

  transfer(to) {
    this.open({
      heading: `Transfer the leadership to member ${to}`, confirm: String(to), what: "the number of the member",
      says: ["No connection is closed. Updates wait for some milliseconds."], body: { act: "transfer", to },
    });
  }

  snapshot() {
    this.open({
      heading: "Take a snapshot", confirm: "snapshot", what: "the word snapshot",
      says: ["The member writes its state to its disk. Clients are served meanwhile."], body: { act: "snapshot" },
    });
  }

  open(ask) {
    this.ask = { ...ask, typed: "", busy: false, done: null, error: null };
    this.draw();
    this.box.showModal();
    this.box.querySelector("input")?.focus();
  }

  draw() { patch(this.box, this.ask ? this.form(this.ask) : []); }

  form(ask) {
    const close = () => this.box.close();
    if (ask.done) {
      return h("div", { key: "done" }, h("h2", { id: "act-h" }, "Done"), h("p", { id: "act-result", role: "status" }, sentence(ask.done.says ?? "It is done.")),
        facts(ask.done), h("p", { class: "buttons" }, h("button", { type: "button", class: "button strong", onclick: close }, "Close")));
    }
    return h("form", { key: "ask", onsubmit: (e) => { e.preventDefault(); this.perform(ask); } },
      h("h2", { id: "act-h" }, ask.heading),
      ask.says.filter(Boolean).map((s) => h("p", {}, visible(s))),
      h("label", { class: "confirm" }, h("span", {}, `Type ${ask.what} to confirm: `, h("code", {}, visible(ask.confirm))),
        h("input", { name: "confirm", autocomplete: "off", spellcheck: "false", value: "", oninput: (e) => { ask.typed = e.target.value; this.draw(); } })),
      ask.error ? h("p", { role: "alert", class: "bad-text" }, sentence(ask.error)) : null,
      h("p", { class: "buttons" },
        h("button", { type: "submit", class: "button danger", disabled: ask.busy || ask.typed !== ask.confirm }, ask.busy ? "Asking the member…" : ask.heading),
        h("button", { type: "button", class: "button", onclick: close }, "Cancel")));
  }

  async perform(ask) {
    if (ask.busy || ask.typed !== ask.confirm) return;
    ask.busy = true;
    ask.error = null;
    this.draw();
    try {
      ask.done = await this.app.live.act({ ...ask.body, confirm: ask.typed });
    } catch (err) {
      ask.error = err.message;
    }
    ask.busy = false;
    this.draw();
    if (this.ask === ask && ask.done) this.box.querySelector("button")?.focus();
  }
}

function facts(done) {
  const words = [done.ephemerals !== undefined ? `${plural(done.ephemerals, "ephemeral")} deleted.` : "",
    done.leader ? `Member ${done.leader} leads.` : "", done.bytes ? `${count(done.bytes)} bytes, up to entry ${count(done.index)}.` : "",
    done.zxid ? `In ${done.zxid}.` : ""].filter(Boolean);
  return words.length ? h("p", { class: "soft" }, words.join(" ")) : null;
}

// holderSees is the reaction of the holder's library to the deletion of its node
// (docs/guarantees.md).
function holderSees(c) {
  const token = c.token ? ` Its late writes carry the token ${c.token}: only a resource that checks tokens refuses them.` : "";
  if (c.library === "lockkeeper") {
    return `The holder learns of it at once: its grant is lost, with ErrDeleted.${token}`;
  }
  return `The holder is not told: ${c.library ? `the library ${c.library}` : "its library"} does not watch its own node, and the program goes on as if it had the lock until it releases it.${token}`;
}
