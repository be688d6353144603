// Acts of a super user. The credentials stay in the memory of this page.

import { h } from "./dom.js";
import { visible } from "./format.js";
import { badge, facts, sentence } from "./parts.js";

export const title = () => "Acts";
export const stream = () => ["cluster", {}];
export const enter = (app) => { app.identify(); };

export function render(app) {
  const me = app.whoami;
  return [
    h("p", { class: "lead", id: "summary" }, !me ? "Reading…" : me.error ? sentence(me.error) : me.acts ? "You may act. Each act is confirmed by typing, and in this member's log, and in the audit log if audit.enable is on." : "You may look, and not act."),
    me && !me.acts && me.actsRefused ? h("p", { class: "soft" }, sentence(me.actsRefused)) : null,
    h("section", { class: "card", "aria-labelledby": "login-h" }, h("h2", { id: "login-h" }, "Who you are"),
      me?.identities ? facts([["Identities", me.identities.map(visible).join(", ") || "none"], ["Super", me.super ? badge("strong", "yes") : "no"]]) : null,
      app.live.credentials ? logout(app) : login(app)),
    me?.acts ? acts(app) : null,
  ];
}

function login(app) {
  const submit = async (e) => {
    e.preventDefault();
    const { user, password } = e.target.elements;
    app.live.authenticate(`${user.value}:${password.value}`);
    password.value = "";
    const me = await app.identify();
    app.local.refused = me.super ? "" : "These credentials are not those of a super user.";
    if (!me.super) app.live.authenticate("");
    if (!me.super) await app.identify();
    app.draw();
  };
  return h("form", { key: "login", class: "login", onsubmit: submit },
    h("label", {}, h("span", {}, "User"), h("input", { name: "user", autocomplete: "off", required: true, value: "super" })),
    h("label", {}, h("span", {}, "Password"), h("input", { name: "password", type: "password", autocomplete: "off", required: true })),
    h("button", { type: "submit", class: "button strong" }, "Log in"),
    h("p", { class: "soft small" }, "As in DigestAuthenticationProvider.superDigest. The page keeps them in its memory only, until it is closed or reloaded."),
    app.local.refused ? h("p", { role: "alert", class: "bad-text" }, app.local.refused) : null);
}

function logout(app) {
  return h("p", { key: "logout" }, h("button", { type: "button", class: "button", onclick: () => { app.live.authenticate(""); app.identify(); } }, "Log out"));
}

function acts(app) {
  const v = app.live.view;
  const members = v?.members?.filter((m) => m.up && m.role === "participant" && m.id !== v.leader) ?? [];
  return h("div", { class: "columns" },
    h("section", { class: "card", "aria-labelledby": "break-h" }, h("h2", { id: "break-h" }, "Break a lock"),
      h("p", {}, "Deletes the node of a holder. Choose the lock first; the button is in its queue."),
      h("p", {}, h("a", { href: app.link("locks", { only: "held" }) }, "Locks that are held"))),
    h("section", { class: "card", "aria-labelledby": "end-h" }, h("h2", { id: "end-h" }, "End a session"),
      h("p", {}, "Closes it, and deletes all of its ephemerals. Choose the session first; the button is on its page."),
      h("p", {}, h("a", { href: app.link("sessions") }, "Sessions"))),
    h("section", { class: "card", "aria-labelledby": "transfer-h" }, h("h2", { id: "transfer-h" }, "Transfer the leadership"),
      h("p", {}, v?.leader ? `Member ${v.leader} leads. No connection is closed, and no request is lost.` : "No member leads."),
      h("p", { class: "buttons" }, members.map((m) => h("button", { key: m.id, type: "button", class: "button", onclick: () => app.acting.transfer(m.id) }, `To member ${m.id}…`)),
        v && members.length === 0 ? h("span", { class: "soft" }, "There is no other voter that answers.") : null)),
    h("section", { class: "card", "aria-labelledby": "snapshot-h" }, h("h2", { id: "snapshot-h" }, "Take a snapshot"),
      h("p", {}, "This member writes its state to its disk now, as it does by itself from time to time."),
      h("p", {}, h("button", { type: "button", class: "button", onclick: () => app.acting.snapshot() }, "Take a snapshot…"))));
}
