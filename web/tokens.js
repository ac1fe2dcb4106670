// The tokens as a strip of text: what was fed in, what was generated, where the sides part.
import {bodyOf, element, hide, shortNumber} from "./dom.js";
import {codeAt, tokenText} from "./data.js";
import {isWrong} from "./scale.js";

const SHOWN = 1500;  // at a time

export function describeToken(data, position) {
  const lines = [];
  const sides = data.page.tokens;
  const side = data.page.tokens.reference.ids.length > 0 ? "reference" : "suspect";
  const text = tokenText(data, side, position);
  const other = tokenText(data, side === "reference" ? "suspect" : "reference", position);
  const quoted = words => sides.reference.texts ?? sides.suspect.texts ? JSON.stringify(words) : words;
  if (text !== null) lines.push(`token ${quoted(text)}${position < data.page.tokens[side].prompt ? ", prompt" : ", generated"}`);
  if (other !== null && other !== text) lines.push(`the suspect has ${quoted(other)}`);
  const logits = data.logits.get(position);
  if (logits !== undefined) {
    const [, reference, suspect, marginA, marginB, kl] = logits;
    lines.push(reference === suspect ? `both choose token ${reference} next` : `the reference chooses token ${reference} next, the suspect ${suspect}`);
    lines.push(`margin ${shortNumber(marginA)} and ${shortNumber(marginB)}, KL ${shortNumber(kl)}`);
  }
  return lines;
}

export function showTokens(data, selection) {
  const sides = data.page.tokens;
  const count = Math.max(sides.reference.ids.length, sides.suspect.ids.length);
  if (count === 0) return hide("tokens");
  const wrong = new Uint8Array(data.columns.length);
  for (let row = 0; row < data.names.length; ++row)
    for (let column = 0; column < wrong.length; ++column)
      if (isWrong(codeAt(data, "own", row, column), "own")) wrong[column] = 1;
  const body = bodyOf("tokens");
  const strip = element("div", {class: "strip", role: "group", "aria-label": "tokens"});
  const about = element("p", {class: "hint"});
  const pages = element("div", {class: "tools"});
  body.append(element("p", {class: "hint"}, "Generated tokens are underlined in blue; a dashed frame marks a position where an operation is wrong; where the sides part the token is filled."),
              pages, strip, about);
  let first = 0;

  function token(index) {
    const a = tokenText(data, "reference", index), b = tokenText(data, "suspect", index);
    const text = a ?? b;
    const forked = a !== null && b !== null && sides.reference.ids[index] !== sides.suspect.ids[index];
    const prompt = index < (a !== null ? sides.reference : sides.suspect).prompt;
    const column = data.columnOf.get(index);
    const classes = [prompt ? "prompt" : "generated", forked ? "fork" : "", column !== undefined && wrong[column] ? "wrong" : ""].join(" ").trim();
    const shown = text.replaceAll("\n", "⏎") || "∅";
    return element("button", {type: "button", class: classes, "data-position": index, title: [`position ${index}`, ...describeToken(data, index)].join("\n"),
                              "aria-pressed": String(index === selection.position),
                              click: () => selection.move(Math.max(0, selection.row), index)}, forked ? `${shown}⇄${b.replaceAll("\n", "⏎")}` : shown);
  }

  function draw() {
    strip.replaceChildren(...Array.from({length: Math.min(SHOWN, count - first)}, (_, i) => token(first + i)));
    pages.replaceChildren();
    if (count <= SHOWN) return;
    const go = to => { first = Math.max(0, Math.min(to, count - 1)); draw(); };
    pages.append(element("button", {type: "button", disabled: first === 0, click: () => go(first - SHOWN)}, "Before"),
                 element("span", {class: "hint"}, `positions ${first} to ${Math.min(count, first + SHOWN) - 1} of ${count}`),
                 element("button", {type: "button", disabled: first + SHOWN >= count, click: () => go(first + SHOWN)}, "After"));
  }
  draw();

  selection.listen(() => {
    const position = selection.position;
    if (position < count && (position < first || position >= first + SHOWN)) {
      first = Math.floor(position / SHOWN) * SHOWN;
      draw();
    }
    for (const button of strip.querySelectorAll("[aria-pressed=true]")) button.setAttribute("aria-pressed", "false");
    const button = strip.children[position - first];
    if (button !== undefined) {
      button.setAttribute("aria-pressed", "true");
      // Only the strip scrolls, never the page.
      strip.scrollTop = Math.max(0, button.offsetTop - strip.offsetTop - strip.clientHeight / 2);
    }
    about.textContent = [`Position ${position}`, ...describeToken(data, position)].join(" · ");
  });
}
