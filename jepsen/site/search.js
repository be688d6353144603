// The search. Without it the page is complete, and the index has all pages.
"use strict";
const base = document.currentScript.dataset.base;
const form = document.querySelector("form");
const input = form.querySelector("input");
const found = document.getElementById("found");
const most = 12;
form.hidden = false;

let loading;
function load() {
  loading ??= new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.src = base + "search-index.js";
    script.onload = () => resolve(window.sections);
    script.onerror = reject;
    document.head.append(script);
  });
  return loading;
}

// These words of a question say nothing about its subject.
const empty = new Set("a an and are can do does for how i in is it my of on one the this to what when where who why with".split(" "));

function termsOf(text) {
  const all = text.toLowerCase().split(/[\s?,]+/).filter(Boolean);
  const telling = all.filter((term) => !empty.has(term));
  return telling.length > 0 ? telling : all;
}

// score adds up the terms that a section has: it has the more points the more of them it has; a
// heading counts more than text, and a whole word more than a part.
function score(section, terms) {
  const title = section.t.toLowerCase(), heading = section.h.toLowerCase(), words = " " + section.w + " ";
  let sum = 0;
  for (const term of terms) {
    if (heading.includes(term)) sum += 28;
    else if (words.includes(" " + term + " ")) sum += 22;
    else if (words.includes(" " + term)) sum += 20;
    if (title.includes(term)) sum += 4;
  }
  return sum;
}

function element(name, text, className) {
  const e = document.createElement(name);
  e.textContent = text;
  if (className) e.className = className;
  return e;
}

async function search() {
  const terms = termsOf(input.value);
  if (terms.length === 0) {
    found.hidden = true;
    return;
  }
  const sections = await load();
  if (termsOf(input.value).join(" ") !== terms.join(" ")) return; // typed on meanwhile
  const hits = sections.map((section) => ({ section, points: score(section, terms) }))
    .filter((hit) => hit.points > 0).sort((a, b) => b.points - a.points).slice(0, most);
  const list = document.createElement("ul");
  for (const { section } of hits) {
    const item = document.createElement("li");
    const link = element("a", section.h === section.t ? section.t : `${section.t}: ${section.h}`);
    link.href = base + section.a;
    link.addEventListener("click", () => { found.hidden = true; });
    item.append(link, element("p", section.b, "soft"));
    list.append(item);
  }
  found.replaceChildren(hits.length > 0 ? list : element("p", "No page has any of these words."));
  found.hidden = false;
}

form.addEventListener("submit", (event) => { event.preventDefault(); search(); });
input.addEventListener("input", search);
input.addEventListener("keydown", (event) => {
  if (event.key === "Escape") { input.value = ""; found.hidden = true; }
});
