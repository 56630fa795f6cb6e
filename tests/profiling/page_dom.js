// Runs a page's script on a document that is just large enough, and says what came of it.
"use strict";
const fs = require("fs");
const html = fs.readFileSync(process.argv[2], "utf8");
class Element {
  constructor(name) { this.name = name; this.children = []; this.attributes = {}; this.listeners = {}; this.style = {}; this.dataset = {}; this.text = ""; this.offsetWidth = this.offsetHeight = 10; const on = new Set(); this.classList = {toggle: (c, v) => v ? on.add(c) : on.delete(c), has: c => on.has(c)}; }
  setAttribute(k, v) { this.attributes[k] = String(v); if (k.startsWith("data-")) this.dataset[k.slice(5)] = String(v); if (k === "value") this.value = String(v); }
  append(...parts) { for (const p of parts) this.children.push(typeof p === "string" ? Object.assign(new Element("#text"), {text: p}) : p); }
  replaceChildren(...parts) { this.children = []; this.append(...parts); }
  addEventListener(kind, f) { (this.listeners[kind] ||= []).push(f); }
  dispatch(kind, event) { for (const f of this.listeners[kind] || []) f(event); }
  getBoundingClientRect() { return {left: 0, top: 0, width: 1060, height: 320}; }
  set textContent(t) { this.text = String(t); this.children = []; }
  get textContent() { return this.text + this.children.map(c => c.textContent).join(""); }
  all(test) { return [...(test(this) ? [this] : []), ...this.children.flatMap(c => c.all(test))]; }
  querySelectorAll(selector) { return this.all(e => (e.attributes.class || "").split(" ").includes(selector.slice(1))); }
}
const ids = {};
for (const [, name, id] of html.matchAll(/<(\w+)[^>]*? id="(\w+)"/g)) ids[id] = new Element(name);
const body = new Element("body");
body.children = Object.values(ids);
globalThis.document = {createElement: n => new Element(n), createElementNS: (_, n) => new Element(n), getElementById: id => ids[id], body};
globalThis.innerWidth = 1280; globalThis.innerHeight = 800;
(0, eval)(html.match(/<script>([\s\S]*)<\/script>/)[1]);
const bands = body.querySelectorAll(".band"), slider = body.all(e => e.name === "input")[0], says = body.querySelectorAll(".says")[0];
const saved = bands.find(b => b.attributes.fill === "#e07a5f" || b.attributes.fill === "#c95a3d");
saved.dispatch("mousemove", {clientX: 560, clientY: 100});
const tip = ids.tip.children.map(c => c.textContent), before = says && says.textContent, budgets = [];
saved.dispatch("mouseleave", {});
if (slider) for (let k = 0; k <= +slider.attributes.max; ++k) { slider.value = String(k); slider.dispatch("input", {}); budgets.push([says.textContent, body.querySelectorAll(".band").length, body.querySelectorAll(".budget").length]); }
const paths = bands.map(b => b.attributes.d);
console.log(JSON.stringify({ready: body.dataset.ready, bands: bands.length, bad: paths.filter(d => /NaN|undefined|Infinity/.test(d)).length, tip, shown: ids.tip.style.display, before, budgets, text: body.textContent}));
