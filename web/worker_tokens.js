// The tokens of an answer: each shows its probability, and what else might have come, under a pointer, at a touch, and by the arrow keys.
import {element} from "./dom.js";

const UNSURE = Math.log(0.5);
const shown = new Map();  // by the token's element

const shareOf = log => Math.min(1, Math.exp(log));
const percent = log => { const share = 100 * shareOf(log); return share >= 99.995 ? "100%" : share >= 0.01 ? share.toPrecision(3) + "%" : "below 0.01%"; };

export function putTokens(answer, text, tokens) {
  const span = element("span", {class: tokens.some(({log}) => log < UNSURE) ? "unsure" : null}, text);
  shown.set(span, tokens);
  answer.append(span);
}

export function takeTokens(answer) {
  for (const span of answer.children) shown.delete(span);
  answer.replaceChildren();
  hideTip();
}

// The text of a tip: a line for each token, its alternatives after it.
export function rowsOf(tokens) {
  return tokens.flatMap(({token, log, others}) => [[token, log], ...others.filter(([other]) => other !== token)]);
}

let tip = null, current = null;

function hideTip() {
  tip?.remove();
  current?.classList.remove("now");
  tip = current = null;
}

function showTip(span) {
  if (span === current) return;
  hideTip();
  current = span;
  span.classList.add("now");
  tip = element("div", {class: "tip", role: "tooltip"}, element("table", {}, element("tbody", {}, rowsOf(shown.get(span)).map(([token, log]) =>
    element("tr", {}, element("td", {class: "mono"}, JSON.stringify(token)), element("td", {}, element("span", {class: "share", style: `width: ${100 * shareOf(log)}%`})),
      element("td", {}, percent(log)))))));
  const talk = span.closest("#talk"), all = talk.getBoundingClientRect(), at = span.getClientRects()[0] ?? span.getBoundingClientRect();
  talk.append(tip);
  tip.style.left = `${Math.max(0, Math.min(at.left - all.left, all.width - tip.offsetWidth))}px`;
  tip.style.top = `${at.bottom - all.top + 6}px`;
}

export function watchTokens(answer) {
  const tokenAt = event => shown.has(event.target) ? event.target : null;
  for (const name of ["pointerover", "click"]) answer.addEventListener(name, event => tokenAt(event) && showTip(tokenAt(event)));
  answer.addEventListener("pointerleave", hideTip);
  answer.addEventListener("blur", hideTip);
  answer.addEventListener("keydown", event => {
    const step = {ArrowRight: 1, ArrowLeft: -1}[event.key];
    if (event.key === "Escape") hideTip();
    if (!step || !answer.firstElementChild) return;
    event.preventDefault();
    const here = current?.parentNode === answer ? current : null;
    const next = here ? (step > 0 ? here.nextElementSibling : here.previousElementSibling) : answer.firstElementChild;
    if (next) showTip(next);
  });
}
