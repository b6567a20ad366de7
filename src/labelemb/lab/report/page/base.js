// Small helpers that everything else uses. Text from data reaches the page only as text nodes, never as markup.

const data = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);

/** Text with every character replaced by its escape that cannot be seen or that reverses what is read. */
const visible = (text) => text.replace(/[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/gu, (sign) => (/[\n\t\u200c\u200d]/.test(sign) ? sign : `\\u${sign.codePointAt(0).toString(16).padStart(4, "0")}`));
const seen = (child) => (typeof child === "string" ? visible(child) : child);

/** An HTML element with attributes and children; a string child becomes text. */
function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value !== null && value !== false) node.setAttribute(name, value);
  }
  node.append(...children.map(seen));
  return node;
}

/** The pieces of a name, which may break after each: at underscores, hyphens, slashes, @, + and dots, not in a number. */
const pieces = (name) => name.split(/(?<=[_\-/@+])(?<!=-|\d[eE][-+])|(?<=\.)(?!\d)/);

/** A name that may break between its pieces, as children of an element. */
const breakable = (name) => pieces(name).flatMap((part, index) => (index ? [el("wbr"), part] : [part]));

/** A cell that becomes the line of a card on a narrow screen, after its title. */
const titled = (title, attributes, ...children) => el("td", { "data-title": title, ...attributes }, el("span", {}, ...children));

/** Numbers from base64; the file is little-endian, as every machine that runs a browser is. */
function unpack(text, Kind) {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  return new Kind(bytes.buffer);
}

const listeners = {};
/** Call a function whenever something is told: "methods", "space", "label", "shown" or "theme". */
function on(what, listener) {
  (listeners[what] ??= []).push(listener);
}
function tell(what) {
  for (const listener of listeners[what] ?? []) listener();
}

const fixed = (value, digits) => (value === null || value === undefined ? "–" : value.toFixed(digits));
const signed = (value, digits) => (value > 0 ? "+" : value < 0 ? "−" : "±") + Math.abs(value).toFixed(digits);
const short = (value) => (value === 0 ? "0" : value < 0.0001 ? value.toExponential(1) : value.toPrecision(3).replace(/0+$/, "").replace(/\.$/, ""));
const plural = (count, word) => `${count.toLocaleString("en")} ${word}${count === 1 ? "" : "s"}`;
const capital = (text) => text[0].toUpperCase() + text.slice(1);
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function showTip(text, event) {
  const tip = byId("tip");
  tip.textContent = visible(text);
  tip.hidden = false;
  const { width, height } = tip.getBoundingClientRect();
  const left = Math.min(event.clientX + 14, innerWidth - width - 8);
  const above = event.clientY - height - 12;
  tip.style.left = `${Math.max(8, left)}px`;
  tip.style.top = `${above > 8 ? above : event.clientY + 16}px`;
}
function hideTip() {
  byId("tip").hidden = true;
}

/** Draw now, and again whenever the box changes its width. */
function redrawOnResize(box, draw) {
  let width = 0;
  new ResizeObserver(() => {
    const now = Math.round(box.clientWidth);
    if (now && now !== width) {
      width = now;
      requestAnimationFrame(draw); // drawing may change the height, which the observer must not see in its own turn
    }
  }).observe(box);
}

/** A canvas as sharp as the screen; gives its context in CSS pixels. */
function sharp(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  return context;
}

// Theme: the system's, until the button says otherwise. Paper is always light.
const systemDark = matchMedia("(prefers-color-scheme: dark)");
let chosenTheme = null;
function applyTheme(theme = chosenTheme ?? (systemDark.matches ? "dark" : "light")) {
  document.documentElement.dataset.theme = theme;
  byId("theme").textContent = theme === "dark" ? "Light colours" : "Dark colours";
  tell("theme");
}
function startTheme() {
  byId("theme").addEventListener("click", () => {
    chosenTheme = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
    applyTheme();
  });
  systemDark.addEventListener("change", () => applyTheme());
  addEventListener("beforeprint", () => applyTheme("light"));
  addEventListener("afterprint", () => applyTheme());
  applyTheme();
}
