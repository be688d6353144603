"use strict";
// Shows the figures of the second under the pointer, and a line through all pictures at that time.
(() => {
  const pictures = document.getElementById("pictures");
  const out = document.getElementById("readout");
  const data = JSON.parse(document.getElementById("data").textContent);
  const mostFaults = 4;
  const ms = (v) => (v >= 1000 ? (v / 1000).toFixed(1) + " s" : v.toFixed(v >= 10 ? 0 : v >= 1 ? 1 : 2) + " ms");
  const clip = (s) => (s.length > 60 ? s.slice(0, 60) + " …" : s);
  const clock = (s) => (s < 120 ? s + " s" : Math.floor(s / 60) + ":" + String(s % 60).padStart(2, "0") + " min");
  const operation = (o, i) => {
    const s = o.slices[i];
    let text = `${o.f}: ${s.ok} ok`;
    if (s.fail) text += `, ${s.fail} fail`;
    if (s.info) text += `, ${s.info} unknown`;
    if (s.ok) text += ` (p50 ${ms(s.latency.p50Ms)}, p99 ${ms(s.latency.p99Ms)}, max ${ms(s.latency.maxMs)})`;
    return text;
  };
  const text = (i) => {
    const ended = (data.ops || []).filter((o) => o.slices[i].ok + o.slices[i].fail + o.slices[i].info > 0);
    const from = i * data.sliceMs * 1e6;
    const broken = (data.faults || []).filter((f) => f.fromNs < from + data.sliceMs * 1e6 && f.toNs >= from);
    const names = broken.slice(0, mostFaults).map((f) => clip(`${f.kind} ${f.on || ""}`.trim()));
    if (broken.length > mostFaults) names.push(`and ${broken.length - mostFaults} more`);
    return [clock((i * data.sliceMs) / 1000), ...ended.map((o) => operation(o, i)), names.join(", ")].filter(Boolean).join(" · ");
  };
  const at = (event) => {
    const area = event.target.closest(".plot")?.querySelector(".area");
    if (!area) return;
    const box = area.getBoundingClientRect();
    const share = Math.min(1, Math.max(0, (event.clientX - box.left) / box.width));
    pictures.classList.add("pointed");
    pictures.style.setProperty("--at", 100 * share + "%");
    const slices = Math.ceil(data.lengthMs / data.sliceMs);
    out.textContent = text(Math.min(slices - 1, Math.floor((share * data.lengthMs) / data.sliceMs)));
  };
  pictures.addEventListener("pointermove", at);
  pictures.addEventListener("pointerdown", at);
  out.textContent = "Point at a picture to read the figures of that second.";
})();
