"use strict";
// A tip that follows pointer or focus, and charts that say their numbers in it.
const tip = document.createElement("div");
tip.className = "tip";
tip.hidden = true;
tip.setAttribute("role", "status");
document.body.append(tip);

let tipOwner = null;

function showTip(owner, lines, x, y) {
  tipOwner = owner;
  tip.replaceChildren(...lines.map(({ text, colour }) => {
    const line = document.createElement("div");
    if (colour) {
      const dot = document.createElement("span");
      dot.className = "dot";
      dot.style.background = `var(--${colour})`;
      line.append(dot);
    }
    line.append(text);
    return line;
  }));
  tip.hidden = false;
  const right = window.innerWidth - tip.offsetWidth - 8;
  const below = y + 20 + tip.offsetHeight < window.innerHeight;
  tip.style.left = Math.max(8, Math.min(x + 14, right)) + "px";
  tip.style.top = Math.max(8, below ? y + 18 : y - tip.offsetHeight - 12) + "px";
}
function hideTip(owner) {
  if (tipOwner === owner) tip.hidden = true;
}

function readable(chart) {
  const said = JSON.parse(chart.dataset.readout);
  const view = chart.viewBox.baseVal;
  const make = (name, attributes) => {
    const part = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) part.setAttribute(key, value);
    return part;
  };
  const marks = make("g", { class: "marks" });
  chart.append(marks);
  let current = said.at.length - 1;

  function show(index, pointed) {
    current = Math.max(0, Math.min(index, said.at.length - 1));
    const x = said.at[current];
    const lines = said.lines.filter((line) => line.heights[current] !== null);
    marks.replaceChildren(
      make("line", { x1: x, x2: x, y1: said.top, y2: said.bottom }),
      ...lines.map((line) => {
        const dot = make("circle", { cx: x, cy: line.heights[current], r: 3 });
        dot.style.fill = `var(--${line.colour})`;
        return dot;
      }),
    );
    const box = chart.getBoundingClientRect();
    const scale = box.width / view.width;
    const at = pointed || [box.left + x * scale, box.top + said.top * scale];
    const told = lines.map((line) => (
      { text: `${line.name} ${line.texts[current]}`, colour: line.colour }
    ));
    showTip(chart, [{ text: said.heads[current] }, ...told], ...at);
  }
  function leave() {
    marks.replaceChildren();
    hideTip(chart);
  }
  function follow(event) {
    const box = chart.getBoundingClientRect();
    const x = (event.clientX - box.left) / box.width * view.width;
    if (x < said.left - 6 || x > said.right + 6) return leave();
    const gaps = said.at.map((at) => Math.abs(at - x));
    return show(gaps.indexOf(Math.min(...gaps)), [event.clientX, event.clientY]);
  }
  chart.addEventListener("pointerdown", follow);
  chart.addEventListener("pointermove", follow);
  // A finger that is lifted leaves too, and what it asked for stays until the next touch.
  chart.addEventListener("pointerleave", (event) => { if (event.pointerType !== "touch") leave(); });
  document.addEventListener("pointerdown", (event) => { if (!chart.contains(event.target)) leave(); });
  chart.addEventListener("focus", () => { if (chart.matches(":focus-visible")) show(current); });
  chart.addEventListener("blur", leave);
  chart.addEventListener("keydown", (event) => {
    const steps = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity };
    if (event.key === "Escape") leave();
    if (!(event.key in steps)) return;
    event.preventDefault();
    show(current + steps[event.key]);
  });
}
for (const chart of document.querySelectorAll("svg[data-readout]")) readable(chart);
