// Two model files: what the difference of the sides comes from.
import {bodyOf, element, hide, shape, shortNumber} from "./dom.js";
import {frame, written} from "./charts.js";

const ORIGINS = [["weights", "the suspect's weights"], ["rounding", "the suspect's rounding"], ["inherited", "inherited"], ["reference_rounding", "the reference's rounding"]];
const BAR_WIDTH = 1060, BAR_LEFT = 130, BAR_HEIGHT = 18, BAR_KEY = 26;
const percentOf = value => value === null ? "–" : `${shortNumber(100 * value)} %`;

// A bar for each layer: how much of its squares each part has.
function layerBars(layers) {
  const svg = frame("What the difference after each layer comes from", BAR_WIDTH, BAR_KEY + BAR_HEIGHT * layers.length);
  ORIGINS.forEach(([id, words], i) => svg.append(shape("rect", {class: `origin ${id}`, x: BAR_LEFT + 220 * i, y: 2, width: 12, height: 12}), written(BAR_LEFT + 18 + 220 * i, 12, words, "start")));
  layers.forEach((layer, row) => {
    const top = BAR_KEY + BAR_HEIGHT * row;
    const sizes = ORIGINS.map(([id]) => (layer[id] ?? 0) ** 2), all = sizes.reduce((a, b) => a + b, 0);
    svg.append(written(BAR_LEFT - 8, top + 12, layer.layer === null ? layer.checkpoint : `layer ${layer.layer}`, "end"));
    let left = BAR_LEFT;
    ORIGINS.forEach(([id, words], i) => {
      const width = all > 0 ? (BAR_WIDTH - BAR_LEFT - 10) * sizes[i] / all : 0;
      svg.append(shape("rect", {class: `origin ${id}`, x: left.toFixed(1), y: top, width: width.toFixed(1), height: BAR_HEIGHT - 4},
                       shape("title", {}, `${layer.checkpoint}: ${words} ${percentOf(layer[id])} of its size`)));
      left += width;
    });
  });
  return svg;
}

function partsTable(titles, rows) {
  return element("div", {class: "scroll"}, element("table", {}, element("thead", {}, element("tr", {}, titles.map((title, i) => element("th", {class: i === 0 ? "text" : null, scope: "col"}, title)))),
    element("tbody", {}, rows.map(cells => element("tr", {}, cells.map((cell, i) => element("td", {class: i === 0 ? "mono" : null}, cell)))))));
}

const partsOf = value => [value.difference, value.weights, value.rounding, value.inherited, value.reference_rounding].map(percentOf);

export function showExplained(data) {
  const {explanation} = data;
  if (!explanation) return hide("explained");
  const body = bodyOf("explained");
  body.append(...explanation.text.map(sentence => element("p", {}, sentence)));
  if (explanation.settings.length > 0) body.append(element("p", {}, "The files also differ in: ", explanation.settings.join("; "), "."));
  if (explanation.layers.length > 0) body.append(element("div", {class: "plot"}, layerBars(explanation.layers)));
  const titles = ["differs by", "weights", "rounding", "inherited", "reference's rounding"];
  const tensors = explanation.values.filter(value => value.tensors.length > 0 && value.work !== "several").sort((a, b) => b.weights - a.weights);
  if (tensors.length > 0)
    body.append(element("h3", {}, "By tensor"), element("p", {class: "hint"}, "Each part beside the size of what the tensor computes in the reference."),
      partsTable(["tensor", "format", ...titles], tensors.map(value => [value.tensors.map(tensor => tensor.name).join(", "),
        value.tensors[0].reference_format === value.tensors[0].suspect_format ? value.tensors[0].reference_format : `${value.tensors[0].reference_format} to ${value.tensors[0].suspect_format}`, ...partsOf(value)])));
}
