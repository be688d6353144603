"use strict";
// Shows the figures of the second under the pointer, and a line through all pictures at that time.
(() => {
  const pictures = document.getElementById("pictures");
  const out = document.getElementById("readout");
  const data = JSON.parse(document.getElementById("data").textContent);
  const at = (event) => {
    const area = event.target.closest(".plot")?.querySelector(".area");
    if (!area) return;
    const box = area.getBoundingClientRect();
    const share = Math.min(1, Math.max(0, (event.clientX - box.left) / box.width));
    pictures.classList.add("pointed");
    pictures.style.setProperty("--at", 100 * share + "%");
    const slice = Math.min(data.texts.length - 1, Math.floor((share * data.lengthMs) / data.sliceMs));
    out.textContent = data.texts[slice];
  };
  pictures.addEventListener("pointermove", at);
  pictures.addEventListener("pointerdown", at);
  out.textContent = "Point at a picture to read the figures of that second.";
})();
