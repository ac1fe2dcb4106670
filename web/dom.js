// Elements made of data. What comes from traces and models becomes text and attributes, never markup.

export function element(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

export function shape(tag, attributes = {}, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function fill(made, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") made.addEventListener(name, value);
    else if (value === true) made.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) made.setAttribute(name, value);
  }
  for (const child of children.flat(Infinity)) if (child !== null && child !== undefined) made.append(child);
  return made;
}

export function bodyOf(id) {
  return document.querySelector(`#${id} .body`);
}

export function hide(id) {
  document.getElementById(id).hidden = true;
}

// "0", "0.031", "123", "3.1e-7", "infinite".
export function shortNumber(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (!Number.isFinite(value)) return "infinite";
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e-3 && size < 1e5) return String(Number(value.toPrecision(3)));
  return value.toExponential(1);
}

export function exactNumber(value) {
  if (value === null || value === undefined) return "NaN or infinite";
  return String(Number(value.toPrecision(9)));
}

// A word of a shell command.
export function shellWord(text) {
  return /^[\w@%+=:,.\/-]+$/.test(text) ? text : "'" + text.replaceAll("'", "'\\''") + "'";
}

export function commandLine(words) {
  const text = words.join(" ");
  const button = element("button", {type: "button", click: async () => {
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(button.previousSibling);
      button.textContent = "Selected";
    }
  }}, "Copy");
  return element("div", {class: "command"}, element("code", {}, text), button);
}
