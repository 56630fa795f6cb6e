// Appended to a page that a real browser shows: points at what is drawn, moves the slider, and leaves what came of it in the document.
"use strict";
const errors = [];
addEventListener("error", event => errors.push(event.message));
function pointed(x, y) { // what lies there, and what the page says of it
  const target = document.elementFromPoint(x, y), tip = document.getElementById("tip");
  target.dispatchEvent(new MouseEvent("mousemove", {clientX: x, clientY: y, bubbles: true}));
  const box = tip.getBoundingClientRect(), says = [...tip.children].map(line => line.textContent), seen = getComputedStyle(tip).display !== "none";
  const inside = box.left >= 0 && box.right <= innerWidth && box.top >= 0 && box.bottom <= innerHeight;
  target.dispatchEvent(new MouseEvent("mouseleave"));
  return {band: target.dataset.band, says, seen, inside, gone: getComputedStyle(tip).display === "none"};
}
const chart = document.querySelector("section svg"), frame = chart.getBoundingClientRect();
const middle = frame.left + frame.width * .53, column = new Map();
for (let y = frame.top + 1; y < frame.bottom; y += 2) {
  const found = pointed(middle, y);
  if (found.band) column.set(found.says[0], found);
}
const input = document.querySelector("input[type=range]"), says = document.querySelector(".says"), budgets = [];
for (let k = 0; k <= +input.max; ++k) {
  input.value = k;
  input.dispatchEvent(new Event("input"));
  const line = document.querySelector(".budget"), boxes = [...document.querySelectorAll("section .band")].map(b => b.getBoundingClientRect());
  budgets.push({says: says.textContent, line: line && line.getBoundingClientRect().top, top: Math.min(...boxes.map(b => b.top))});
}
const out = document.createElement("pre");
out.id = "driven";
out.textContent = JSON.stringify({ready: document.body.dataset.ready, errors, column: [...column.values()], budgets, wide: document.documentElement.scrollWidth <= innerWidth});
document.body.append(out);
