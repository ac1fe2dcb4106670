// What a quantized file costs, and which tensors cost it: the page of `lockstep quality --html`.
import {bodyOf, element, hide, shape, shortNumber} from "./dom.js";
import {frame, written} from "./charts.js";

const MOST_BARS = 40, BAR_ROW = 18, NAME_WIDTH = 250, PLOT_WIDTH = 1060;
const data = JSON.parse(document.getElementById("data").textContent);
const percent = value => `${shortNumber(100 * value)} %`;
const fileName = path => path.split("/").pop();
const bitsOf = (bytes, values) => (8 * bytes / values).toFixed(2);
const megabytes = bytes => bytes < 1e6 ? `${(bytes / 1e3).toFixed(1)} kB` : `${(bytes / 1e6).toFixed(1)} MB`;
const rangeOf = interval => interval.low === null ? "–" : `${shortNumber(interval.low)} to ${shortNumber(interval.high)}`;

function table(titles, texts, rows) {
  return element("div", {class: "scroll", tabindex: 0}, element("table", {},
    element("thead", {}, element("tr", {}, titles.map((title, i) => element("th", {class: i < texts ? "text" : null, scope: "col"}, title)))),
    element("tbody", {}, rows.map(cells => element("tr", {}, cells.map((cell, i) => element("td", {class: i < texts ? "text" : null}, cell)))))));
}

function showStory() {
  const title = `${fileName(data.suspect)} costs a mean KL of ${shortNumber(data.kl_mean.value)}`;
  document.querySelector("#story h1").textContent = title;
  document.getElementById("about").textContent =
    `Against ${data.reference}, on ${data.tokens} predicted tokens of a text of ${data.text_tokens}, on ${data.device}. ` +
    `${bitsOf(data.bytes_suspect, data.values)} bits a weight (${megabytes(data.bytes_suspect)}), the reference ` +
    `${bitsOf(data.bytes_reference, data.values)} (${megabytes(data.bytes_reference)}).`;
}

function showCosts() {
  const rows = [["perplexity of the reference", data.perplexity_reference], ["perplexity of the suspect", data.perplexity_suspect],
    ["suspect over reference", data.perplexity_ratio], ["KL of the next token, mean", data.kl_mean], ["KL, median", data.kl_median],
    ["KL, 99% are below", data.kl_p99]].map(([name, number]) => [name, shortNumber(number.value), rangeOf(number)]);
  const same = data.same_choice;
  rows.push(["the same choice", percent(same.value), same.low === null ? "–" : `${percent(same.low)} to ${percent(same.high)}`]);
  bodyOf("costs").append(table(["what", "value", "95% interval"], 1, rows));
}

// "blk.3.attn_q.weight": its layer, or null, and what it is.
function placeOf(name) {
  const found = /^blk\.(\d+)\.(.*?)(\.weight)?$/.exec(name);
  return found ? {layer: Number(found[1]), kind: found[2]} : {layer: null, kind: name.replace(/\.weight$/, "")};
}

const wordsOf = tensor => `${tensor.name}: ${tensor.type_reference} to ${tensor.type_suspect}, ${megabytes(tensor.bytes_suspect)}; ` +
  `KL alone ${shortNumber(tensor.kl_alone.value)}, saved if put back ${shortNumber(tensor.kl_saved.value)}`;

// Kinds of tensors by layers.
function showPicture(tensors) {
  const places = tensors.map(tensor => ({tensor, ...placeOf(tensor.name)}));
  const layers = 1 + Math.max(-1, ...places.map(place => place.layer ?? -1));
  const kinds = [...new Set(places.filter(place => place.layer !== null).map(place => place.kind))].sort();
  const alone = places.filter(place => place.layer === null);
  const side = Math.max(6, Math.min(26, Math.floor((PLOT_WIDTH - NAME_WIDTH) / Math.max(layers, 1))));
  const most = Math.max(...tensors.map(tensor => tensor.kl_alone.value), 1e-300), row = Math.max(side, 14);
  const svg = frame("KL that each tensor causes alone, by kind and layer", PLOT_WIDTH, 24 + row * (kinds.length + alone.length));
  for (let layer = 0; layer < layers; layer += Math.ceil(40 / side)) svg.append(written(NAME_WIDTH + side * (layer + 0.5), 14, String(layer), "middle"));
  const square = (place, x, y) => svg.append(
    shape("rect", {class: "place", x, y, width: side - 1, height: row - 1}),
    shape("rect", {class: "square", x, y, width: side - 1, height: row - 1, "fill-opacity": Math.sqrt(Math.max(0, place.tensor.kl_alone.value) / most).toFixed(3)},
      shape("title", {}, wordsOf(place.tensor))));
  kinds.forEach((kind, i) => {
    svg.append(written(NAME_WIDTH - 8, 24 + row * (i + 0.72), kind, "end"));
    for (const place of places) if (place.layer !== null && place.kind === kind) square(place, NAME_WIDTH + side * place.layer, 24 + row * i);
  });
  alone.forEach((place, i) => {
    const y = 24 + row * (kinds.length + i);
    svg.append(written(NAME_WIDTH - 8, y + row * 0.72, place.kind, "end"));
    square(place, NAME_WIDTH, y);
  });
  bodyOf("picture").append(element("div", {class: "plot"}, svg),
    element("p", {class: "hint"}, `Along: layers. The darkest is ${shortNumber(most)}; the shade grows with the root.`));
}

function showRanking(tensors) {
  const shown = tensors.slice(0, MOST_BARS), scale = 700;
  const most = Math.max(...shown.flatMap(tensor => [tensor.kl_alone.value, tensor.kl_alone.high ?? 0, tensor.kl_saved.value]), 1e-300);
  const at = value => NAME_WIDTH + scale * Math.max(0, value) / most;
  const svg = frame("KL that single tensors cause, the most expensive first", PLOT_WIDTH, 10 + BAR_ROW * shown.length);
  shown.forEach((tensor, i) => {
    const top = 4 + BAR_ROW * i, middle = top + 6;
    svg.append(written(NAME_WIDTH - 8, top + 10, tensor.name, "end"),
      shape("rect", {class: "bar", x: NAME_WIDTH, y: top, width: (at(tensor.kl_alone.value) - NAME_WIDTH).toFixed(1), height: BAR_ROW - 6}, shape("title", {}, wordsOf(tensor))));
    if (tensor.kl_alone.low !== null)
      svg.append(shape("line", {class: "chance", x1: at(tensor.kl_alone.low).toFixed(1), x2: at(tensor.kl_alone.high).toFixed(1), y1: middle, y2: middle}));
    svg.append(shape("circle", {class: "saved", cx: at(tensor.kl_saved.value).toFixed(1), cy: middle, r: 3.5}, shape("title", {}, wordsOf(tensor))),
      written(PLOT_WIDTH - 4, top + 10, `${tensor.type_suspect}, ${shortNumber(tensor.kl_alone.value)}`, "end"));
  });
  bodyOf("ranking").append(element("div", {class: "plot"}, svg));
}

function showTensors(tensors) {
  const proposed = new Map((data.recipe?.tensors ?? []).map(line => [line.name, line.type]));
  const titles = ["tensor", "reference", "suspect", ...(data.recipe ? ["recipe"] : []), "size", "KL alone", "95% interval", "saved if put back"];
  bodyOf("tensors").append(table(titles, data.recipe ? 4 : 3, tensors.map(tensor => [tensor.name, tensor.type_reference, tensor.type_suspect,
    ...(data.recipe ? [proposed.get(tensor.name) ?? "–"] : []), megabytes(tensor.bytes_suspect),
    ...(tensor.equal ? ["the same bytes", "–", "–"] : [shortNumber(tensor.kl_alone.value), rangeOf(tensor.kl_alone), shortNumber(tensor.kl_saved.value)])])));
  if (data.recipe) bodyOf("tensors").append(element("p", {}, `The recipe in ${data.recipe.path}: ${megabytes(data.recipe.bytes)}, an estimated KL of ${shortNumber(data.recipe.kl_estimated)}.`));
}

showStory();
showCosts();
const different = data.by_tensor?.tensors.filter(tensor => !tensor.equal) ?? [];
if (different.length > 0) {
  showPicture(different);
  showRanking(different);
} else {
  hide("picture");
  hide("ranking");
}
if (data.by_tensor) showTensors(data.by_tensor.tensors);
else hide("tensors");
document.querySelector("footer").textContent = data.by_tensor ? `Single tensors were measured on ${data.by_tensor.tokens} tokens of the text, where the whole suspect has a KL of ${shortNumber(data.by_tensor.kl_mean.value)}.` : "";
document.documentElement.dataset.ready = "true";
