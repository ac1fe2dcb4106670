// One row opened: the formula, recorded beside expected, and what stands out.
import {bars, picture, scatter} from "./charts.js";
import {bytesOf, openKey} from "./data.js";
import {bodyOf, commandLine, element, exactNumber, shellWord, shortNumber} from "./dom.js";

const LOWEST = -6;  // power of two at which the histogram begins

function formulaOf(data, selection) {
  const name = data.names[selection.row];
  const leaf = name.slice(name.lastIndexOf(".") + 1);
  const entry = data.page.formulas[leaf];
  if (entry === undefined) return [element("p", {class: "hint"}, "This name is no checkpoint's: nothing is known of its operation.")];
  const prefix = name.slice(0, name.length - leaf.length);
  const parts = entry.formula.split(/([A-Za-z_][\w.]*)/).map(word => {
    const row = data.rowOf.get(prefix + word) ?? data.rowOf.get(word);
    if (row === undefined || row === selection.row) return word;
    return element("button", {type: "button", title: data.names[row], click: () => selection.move(row, selection.position, true)}, word);
  });
  return [element("p", {class: "formula mono"}, parts), element("p", {class: "hint"}, entry.notes.replaceAll("`", ""))];
}

function pointsOf(opened) {
  const typed = (Type, text) => new Type(bytesOf(text).buffer);
  const index = typed(Int32Array, opened.points.index), recorded = typed(Float32Array, opened.points.recorded), error = typed(Float32Array, opened.points.error);
  // Engines mask scores with minus infinity, or with a number below -5000.
  const masked = value => opened.keys !== null && value <= -5000;
  const shown = value => masked(value) ? -Infinity : value;
  const found = opened.hypothesis ? typed(Float32Array, opened.hypothesis.points) : null;
  return Array.from(index, (at, i) => ({index: at, y: shown(recorded[i]), x: shown(recorded[i] - error[i]), error: error[i], found: found === null ? null : shown(found[i])}));
}

function histogramOf(opened) {
  const entries = opened.histogram.map((value, i) => {
    const power = LOWEST + i - 2;
    const label = i === 0 ? "0" : i === 1 ? `<2^${LOWEST}` : `2^${power}`;
    const words = i === 0 ? "without error" : i === 1 ? `less than 2^${LOWEST} times` : `2^${power} times and more`;
    return {label, value, wrong: i > 1 && power >= 4, title: `${value} elements ${words}`};
  });
  let end = entries.length;
  while (end > 13 && entries[end - 1].value === 0) --end;
  return bars("Elements by error over expected rounding", "error over the rounding that is expected of an element (16 = 2^4: wrong)", entries.slice(0, end), false);
}

function headsOf(opened) {
  if (opened.heads.length < 2) return null;
  const entries = opened.heads.map(([error, rounding], head) => {
    const ratio = error === 0 ? 0 : rounding > 0 ? (error ?? Infinity) / (4 * rounding) : Infinity;
    return {label: String(head), value: ratio, wrong: ratio > 1, title: `head ${head}: ${shortNumber(ratio)} times the bound`};
  });
  return element("div", {}, element("h3", {}, "By head: error over bound"), bars("Error over bound by head", "head", entries, true, 1));
}

function attentionOf(opened, points) {
  if (opened.keys === null || points.length !== opened.elements) return null;
  const heads = opened.elements / opened.keys;
  return element("div", {}, element("h3", {}, `Attention: ${heads} heads (down) by ${opened.keys} keys (across)`), element("div", {class: "pictures"},
    picture("recorded", heads, opened.keys, i => points[i].y),
    picture("expected", heads, opened.keys, i => points[i].x),
    picture("difference", heads, opened.keys, i => points[i].error)));
}

function elementsOf(opened) {
  if (opened.worst.length === 0) return element("p", {}, "Every element is as expected, bit for bit.");
  const by = opened.inputs.filter(input => input.by_element);
  const size = opened.keys ?? (opened.heads.length > 1 ? opened.elements / opened.heads.length : 0);
  const place = index => size > 0 ? `${index} (head ${Math.floor(index / size)}, ${opened.keys ? "key" : "number"} ${index % size})` : String(index);
  const under = opened.hypothesis;
  const titles = ["element", "recorded", "expected", ...(under ? [`under ${under.cause}`] : []), "error over bound", ...by.map(input => input.name)];
  const cells = (worst, i) => [place(worst.element), exactNumber(worst.recorded), exactNumber(worst.expected), ...(under ? [exactNumber(under.worst[i])] : []), shortNumber(worst.ratio ?? Infinity),
                          ...worst.inputs.map(exactNumber)];
  return element("div", {class: "scroll"}, element("table", {id: "worst"},
    element("thead", {}, element("tr", {}, titles.map(title => element("th", {scope: "col"}, title)))),
    element("tbody", {}, opened.worst.map((worst, i) => element("tr", {}, cells(worst, i).map(text => element("td", {}, text)))))));
}

function inputsOf(opened) {
  if (opened.inputs.length === 0) return null;
  const about = input => `${input.name} (${input.width} numbers, root mean square ${shortNumber(input.rms)}, largest ${shortNumber(input.largest)}` +
    `${input.recorded ? "" : "; not recorded, computed from what lies before it"})`;
  return element("p", {class: "hint"}, `Made of ${opened.inputs.map(about).join(", ")}.`);
}

function openedPart(opened) {
  const points = pointsOf(opened);
  const worst = new Set(opened.worst.filter(each => (each.ratio ?? Infinity) > 1).map(each => each.element));
  const bare = opened.side === "undetermined";
  const ratio = opened.ratio ?? Infinity;
  const error = shortNumber(opened.error), bound = shortNumber(opened.bound);
  const sentence = bare
    ? `Not replayed: expected is the reference's number. The sides differ by ${error} (root mean square); the declared types explain ${bound}.`
    : `The ${opened.side} is ${ratio > 1 ? "wrong" : "right"} here: own error ${error} (root mean square), bound ${bound}; ` +
      `the worst measure is ${shortNumber(ratio)} times its bound.`;
  const some = points.length < opened.elements ? ` (${points.length} of ${opened.elements} elements, the worst among them)` : "";
  return element("div", {"data-side": opened.side}, element("p", {}, sentence), inputsOf(opened),
    element("div", {class: "columns"},
      element("div", {}, element("h3", {}, `Recorded by expected${some}`), scatter(points, worst)),
      opened.hypothesis ? element("div", {id: "hypothesis"}, element("h3", {}, `Recorded under ${opened.hypothesis.cause}${some}`),
        scatter(points.map(point => ({...point, x: point.found})), new Set(), `under ${opened.hypothesis.cause}`),
        element("p", {class: "hint"}, "What the cause at the top of the page would give: on the line it explains the element.")) : null,
      element("div", {}, element("h3", {}, "Elements by their error"), histogramOf(opened)),
      headsOf(opened)),
    attentionOf(opened, points), element("h3", {}, "Worst elements"), elementsOf(opened));
}

export function showCell(data, selection) {
  const body = bodyOf("cell");
  const closed = () => {
    const model = data.model === null ? [] : ["-m", shellWord(data.model)];
    return [element("p", {}, "The numbers of this row are not in the page. This command makes one that has them:"),
            commandLine(["lockstep", "compare", shellWord(data.reference.path), shellWord(data.suspect.path), ...model,
                         "--positions", String(selection.position), "--html", "row.html"])];
  };
  selection.listen(opens => {
    const name = data.names[selection.row];
    document.getElementById("cell-title").textContent = `${name}, position ${selection.position}`;
    const all = [...(data.opened.get(openKey(name, selection.position)) ?? [])].sort((a, b) => (b.ratio ?? Infinity) - (a.ratio ?? Infinity));
    const shown = element("div");
    const tab = (opened, i) => element("button", {type: "button", "aria-pressed": String(i === 0), click: event => {
      for (const other of event.target.parentElement.children) other.setAttribute("aria-pressed", String(other === event.target));
      shown.replaceChildren(openedPart(opened));
    }}, `The ${opened.side}`);
    const tabs = all.length > 1 ? element("div", {class: "tools", role: "group", "aria-label": "side"}, all.map(tab)) : null;
    shown.replaceChildren(...(all.length > 0 ? [openedPart(all[0])] : closed()));
    body.replaceChildren(...formulaOf(data, selection), ...(tabs ? [tabs] : []), shown);
    if (opens) document.getElementById("cell").scrollIntoView({block: "nearest"});
  });
}
