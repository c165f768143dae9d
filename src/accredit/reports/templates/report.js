const tip = document.createElement("div");
tip.className = "tip";
tip.hidden = true;
document.body.append(tip);
for (const token of document.querySelectorAll(".tokens [title]")) {
  token.dataset.note = token.title;
  token.removeAttribute("title");
}
const place = (x, y) => {
  const right = window.innerWidth - tip.offsetWidth - 12;
  const below = y + 22 + tip.offsetHeight < window.innerHeight;
  tip.style.left = Math.max(8, Math.min(x + 14, right)) + "px";
  tip.style.top = (below ? y + 18 : y - tip.offsetHeight - 12) + "px";
};
document.addEventListener("pointermove", (event) => {
  const token = event.target.closest ? event.target.closest("[data-note]") : null;
  tip.hidden = !token;
  if (!token) return;
  if (tip.textContent !== token.dataset.note) tip.textContent = token.dataset.note;
  place(event.clientX, event.clientY);
});
