// Rollouts: unpacked when they are opened, written as text, coloured by choice.
const rollouts = document.querySelector(".rollouts");
if (rollouts) startRollouts();

function startRollouts() {
  const GROUPS_AT_ONCE = 8, SNIPPET = 90;
  const quantities = JSON.parse(rollouts.dataset.quantities);
  const packed = new Map();
  for (const step of document.querySelectorAll("template[data-step]")) {
    packed.set(Number(step.dataset.step), step.content.textContent.trim());
  }
  const unpacked = new Map();
  const facts = new WeakMap();
  let colour = rollouts.dataset.preferred;
  let atOnce = GROUPS_AT_ONCE, drawn = 0;

  const el = (name, className, ...content) => {
    const made = document.createElement(name);
    if (className) made.className = className;
    made.append(...content);
    return made;
  };
  const number = (value, signed) => {
    if (value === null || value === undefined) return "–";
    const text = String(value).replace("-", "−");
    return signed && value > 0 ? "+" + text : text;
  };

  async function unpackGroup(blob, step) {
    const bytes = Uint8Array.from(atob(blob), (letter) => letter.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    const group = await new Response(stream).json();
    for (const rollout of group.rollouts) {
      rollout.step = step;
      rollout.text = rollout.pieces.join("");
    }
    return { ...group, step };
  }
  function groupsOf(step) {
    if (!unpacked.has(step)) {
      const blobs = (packed.get(step) || "").split(/\s+/).filter(Boolean);
      unpacked.set(step, Promise.all(blobs.map((blob) => unpackGroup(blob, step))));
    }
    return unpacked.get(step);
  }
  async function found(step, index) {
    for (const group of await groupsOf(step)) {
      const rollout = group.rollouts.find((one) => one.index === index);
      if (rollout) return rollout;
    }
    return null;
  }

  // One token
  const entry = (rollout, key, place) => {
    const column = rollout.columns[key];
    return Array.isArray(column) ? column[place] : column;
  };
  function note(rollout, t, place) {
    const kind = rollout.kinds[t];
    const lines = [];
    if (kind === "r") lines.push("replayed prefix: conditioning, nobody learns from it");
    if (kind === "g") lines.push("observation: not chosen by the policy");
    if (kind === "m") lines.push("masked: left out of the loss");
    for (const { key, name } of kind === "r" || kind === "g" ? [] : quantities) {
      const value = entry(rollout, key, place);
      if (value === undefined) continue;
      const chance = key === "logprob" && value !== null
        ? ` (probability ${Number(Math.exp(Math.min(value, 0)).toPrecision(3))})` : "";
      lines.push(`${name} ${number(value, key === "credit" || key === "paid")}${chance}`);
    }
    lines.push(`token ${rollout.first + t + 1}`);
    return lines.map((text) => ({ text }));
  }
  function paint(box) {
    const rollout = facts.get(box);
    const quantity = quantities.find((one) => one.key === colour);
    for (const token of box.querySelectorAll("[data-place]")) {
      const value = quantity && quantity.scale
        ? entry(rollout, colour, Number(token.dataset.place)) : undefined;
      const off = value === null || value === undefined ? 0
        : (value - quantity.centre) / quantity.scale;
      token.classList.toggle("over", off > 0);
      token.classList.toggle("under", off < 0);
      token.style.setProperty("--a", Math.min(Math.abs(off), 1).toFixed(2));
    }
  }
  function writeTokens(box, rollout) {
    const kinds = { r: "replayed", g: "given", m: "masked", s: "" };
    let place = 0;
    box.replaceChildren();
    const border = () => {
      const mark = el("span", "border");
      mark.title = "chunk border";
      return mark;
    };
    rollout.pieces.forEach((piece, t) => {
      if (rollout.boundaries.includes(t)) box.append(border());
      const kind = rollout.kinds[t];
      const token = el("span", kinds[kind], piece.replaceAll("\n", "↵\n"));
      token.dataset.t = t;
      if (kind === "s" || kind === "m") token.dataset.place = place++;
      box.append(token);
    });
    if (rollout.boundaries.includes(rollout.pieces.length)) box.append(border());
    if (rollout.hidden) box.append(el("p", "note", `${rollout.hidden} more tokens are in the rollout file.`));
    facts.set(box, rollout);
    box.tabIndex = 0;
    box.setAttribute("role", "group");
    box.setAttribute("aria-label", "completion; arrow keys walk from token to token");
    paint(box);
  }
  function tellToken(token, x, y) {
    const box = token.closest(".tokens");
    for (const other of box.querySelectorAll(".current")) other.classList.remove("current");
    token.classList.add("current");
    const at = token.getClientRects()[0] || token.getBoundingClientRect();
    showTip(
      rollouts, note(facts.get(box), Number(token.dataset.t), Number(token.dataset.place)),
      x === undefined ? at.left : x, y === undefined ? at.bottom - 12 : y,
    );
  }
  function leaveToken() {
    for (const token of document.querySelectorAll(".tokens .current")) token.classList.remove("current");
  }
  let pointed = false;
  const point = (event) => {
    const token = event.target.closest ? event.target.closest(".tokens [data-t]") : null;
    if (token) tellToken(token, event.clientX, event.clientY);
    else if (pointed) { leaveToken(); hideTip(rollouts); }
    pointed = Boolean(token);
  };
  document.addEventListener("pointermove", point);
  document.addEventListener("pointerdown", point);
  document.addEventListener("keydown", (event) => {
    const box = event.target.closest ? event.target.closest(".tokens") : null;
    if (!box || !facts.has(box)) return;
    const tokens = [...box.querySelectorAll("[data-t]")].filter((token) => token.textContent);
    const at = tokens.findIndex((token) => token.classList.contains("current"));
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: tokens.length - 1 }[event.key];
    if (event.key === "Escape") { leaveToken(); hideTip(rollouts); }
    if (to === undefined || !tokens.length) return;
    event.preventDefault();
    const token = tokens[Math.max(0, Math.min(to, tokens.length - 1))];
    token.scrollIntoView({ block: "nearest" });
    tellToken(token);
  });
  document.addEventListener("focusin", (event) => {
    if (!event.target.matches(".tokens:focus-visible") || !facts.has(event.target)) return;
    const first = event.target.querySelector("[data-place]");
    if (first) tellToken(first);
  });
  document.addEventListener("focusout", (event) => {
    if (event.target.matches && event.target.matches(".tokens")) { leaveToken(); hideTip(rollouts); }
  });

  // Colours
  function choose(key) {
    colour = key;
    for (const legend of rollouts.querySelectorAll("[data-legend]")) {
      legend.hidden = legend.dataset.legend !== key;
    }
    for (const box of document.querySelectorAll(".tokens")) if (facts.has(box)) paint(box);
  }
  for (const input of rollouts.querySelectorAll("input[name=colour]")) {
    input.addEventListener("change", () => choose(input.value));
  }
  for (const part of document.querySelectorAll(".scripted")) part.hidden = false;
  choose(colour);

  for (const article of rollouts.querySelectorAll("article[data-step]")) {
    found(Number(article.dataset.step), Number(article.dataset.index)).then((rollout) => {
      if (rollout) writeTokens(article.querySelector(".tokens"), rollout);
    });
  }

  // All rollouts
  const controls = document.querySelector(".controls");
  const [stepBox, sortBox, findBox] = ["step", "sort", "find"].map((name) => controls.elements[name]);
  const list = document.querySelector(".groups"), count = document.querySelector(".count");
  const more = document.querySelector(".more");
  controls.addEventListener("submit", (event) => event.preventDefault());

  const mean = (values) => {
    const known = values.filter((value) => value !== null);
    return known.length ? known.reduce((a, b) => a + b, 0) / known.length : null;
  };
  const lowest = (value) => (value === null ? -Infinity : value);
  const sorts = {
    reward: (one) => lowest(one.reward),
    worst: (one) => (one.reward === null ? -Infinity : -one.reward),
    credit: (one) => Math.abs(one.paid || 0),
    length: (one) => one.pieces.length,
  };
  function sorted(groups, by) {
    if (by === "problem") {
      return [...groups].sort((a, b) => a.problem.localeCompare(b.problem, "en", { numeric: true }));
    }
    const size = sorts[by];
    if (!size) return groups;
    const whole = (group) => lowest(mean(group.rollouts.map(size).filter(Number.isFinite)));
    return groups
      .map((group) => ({ ...group, rollouts: [...group.rollouts].sort((a, b) => size(b) - size(a)) }))
      .sort((a, b) => whole(b) - whole(a));
  }
  const said = (rollout) => [rollout.text, ...rollout.facts.map((fact) => fact[1])];
  function matching(groups, words) {
    if (!words) return groups;
    const holds = (text) => text.toLowerCase().includes(words);
    return groups.flatMap((group) => {
      if ([group.problem, group.prompt, group.answer].some(holds)) return [group];
      const kept = group.rollouts.filter((rollout) => said(rollout).some(holds));
      return kept.length ? [{ ...group, rollouts: kept, whole: group.rollouts.length }] : [];
    });
  }
  function snippet(text, words) {
    const flat = text.replaceAll("\n", "↵");
    const at = words ? flat.toLowerCase().indexOf(words) : -1;
    if (at < 0) return [flat.slice(0, SNIPPET) + (flat.length > SNIPPET ? "…" : "")];
    const from = Math.max(0, at - SNIPPET / 3), end = at + words.length;
    return [(from ? "…" : "") + flat.slice(from, at), el("mark", "", flat.slice(at, end)), flat.slice(end, from + SNIPPET)];
  }
  const paidText = (paid) => number(Number(paid.toPrecision(3)), true);
  function chip(rollout) {
    const sign = rollout.paid > 0 ? " gain" : rollout.paid < 0 ? " loss" : "";
    return el("span", "chip" + sign, rollout.worth.replace("stopped, ", ""));
  }
  function sibling(rollout, words) {
    const box = el("details", "sibling");
    box.dataset.index = rollout.index;
    box.dataset.step = rollout.step;
    const known = Object.fromEntries(rollout.facts);
    const meta = [known.verdict, `${known.tokens} tokens`, known["stopped by"]];
    if (rollout.paid) meta.push(`paid ${paidText(rollout.paid)}`);
    box.append(el(
      "summary", "", chip(rollout), el("span", "snippet", ...snippet(rollout.text, words)),
      el("span", "meta", meta.filter(Boolean).join(" · ")),
    ));
    box.addEventListener("toggle", () => {
      if (!box.open || box.children.length > 1) return;
      const list = el("dl", "facts");
      for (const [name, fact] of rollout.facts) {
        list.append(el("div", "", el("dt", "", name), el("dd", "", fact)));
      }
      const link = el("a", "", `#${rollout.index}`);
      link.href = `#step=${rollout.step}&rollout=${rollout.index}`;
      list.append(el("div", "", el("dt", "", "link"), el("dd", "", link)));
      const tokens = el("div", "tokens");
      tokens.dir = "auto";
      writeTokens(tokens, rollout);
      box.append(list, tokens);
    });
    return box;
  }
  function groupBox(group, words, several) {
    const head = el("h3", "", several ? `step ${group.step} · ${group.problem}` : group.problem);
    const line = el("p", "note", group.answer ? `answer ${group.answer}` : "");
    const whole = group.whole || group.rollouts.length;
    const average = mean(group.rollouts.map((one) => one.reward));
    if (group.whole) line.append(` · ${group.rollouts.length} of ${whole} siblings hold it`);
    else if (average !== null) line.append(` · mean reward ${number(Number(average.toFixed(3)))}`);
    const prompt = el("details", "", el("summary", "", "prompt"), el("div", "prompt", group.prompt));
    prompt.lastChild.dir = "auto";
    return el("div", "group", el("header", "", head, line), prompt, ...group.rollouts.map((one) => sibling(one, words)));
  }
  async function draw(wanted) {
    const ticket = ++drawn;
    const several = stepBox.value === "all";
    const steps = several ? [...packed.keys()] : [Number(stepBox.value)];
    const words = findBox.value.trim().toLowerCase();
    let all;
    try {
      all = (await Promise.all(steps.map(groupsOf))).flat();
    } catch (error) {
      count.textContent = `This browser cannot unpack the rollouts (${error.message}); use accredit show.`;
      return;
    }
    if (ticket !== drawn) return;
    const groups = sorted(matching(all, words), sortBox.value);
    const at = groups.findIndex((group) => group.rollouts.some((one) => one.index === wanted));
    const end = Math.max(atOnce, at + 1);
    list.replaceChildren(...groups.slice(0, end).map((group) => groupBox(group, words, several)));
    const total = groups.reduce((sum, group) => sum + group.rollouts.length, 0);
    count.textContent = `${total.toLocaleString("en")} rollouts of ${groups.length.toLocaleString("en")} groups`
      + (groups.length > end ? `, the first ${end} groups shown` : "");
    more.hidden = groups.length <= end;
    if (wanted === undefined) return;
    const box = list.querySelector(`.sibling[data-index="${Number(wanted)}"]`);
    if (!box) return;
    box.open = true;
    box.scrollIntoView({ block: "center" });
  }
  for (const box of [stepBox, sortBox, findBox]) {
    box.addEventListener("input", () => { atOnce = GROUPS_AT_ONCE; draw(); });
  }
  more.addEventListener("click", () => { atOnce += GROUPS_AT_ONCE; draw(); });
  function follow() {
    const asked = new URLSearchParams(location.hash.slice(1));
    const step = Number(asked.get("step")), index = asked.get("rollout");
    if (asked.has("step") && packed.has(step)) {
      stepBox.value = String(step);
      findBox.value = "";
    }
    draw(index === null ? undefined : Number(index));
  }
  window.addEventListener("hashchange", follow);
  follow();
}
