// The colour scheme: the system's, or the one chosen with the switch. This runs before the page is
// drawn, so that a dark page does not begin with a white flash. It is no module for that.
"use strict";
(() => {
  const root = document.documentElement;
  const names = { auto: "as the system", light: "light", dark: "dark" };
  let scheme = "auto";
  try { scheme = localStorage.getItem("lockkeeper-scheme") ?? "auto"; } catch { /* storage is denied */ }
  const show = () => {
    if (!(scheme in names)) scheme = "auto";
    root.dataset.scheme = scheme;
    const button = document.getElementById("scheme");
    if (button) {
      button.setAttribute("aria-label", `Colours: ${names[scheme]}. Change`);
      button.title = `Colours: ${names[scheme]}`;
    }
  };
  show();
  document.addEventListener("DOMContentLoaded", () => {
    show();
    document.getElementById("scheme").addEventListener("click", () => {
      const dark = matchMedia("(prefers-color-scheme: dark)").matches;
      const order = dark ? ["auto", "light", "dark"] : ["auto", "dark", "light"];
      scheme = order[(order.indexOf(scheme) + 1) % order.length];
      try { localStorage.setItem("lockkeeper-scheme", scheme); } catch { /* until the page is left */ }
      show();
    });
  });
})();
