// All checkpoints, to sort and to filter.
import {bodyOf, element, hide, shortNumber} from "./dom.js";
import {isBad} from "./data.js";
import {VERDICTS} from "./story.js";

const ratioOf = side => side.judged === 0 || side.measure === undefined ? null : side.ratio ?? Infinity;

const COLUMNS = [
  ["checkpoint", c => c.name], ["verdict", c => c.verdict], ["reference*", c => ratioOf(c.reference)], ["suspect*", c => ratioOf(c.suspect)],
  ["relative L2", c => c.relative_l2], ["NMSE", c => c.nmse], ["max diff", c => c.max_difference], ["cosine", c => c.cosine],
  ["worst at", c => c.worst_position], ["positions", c => c.positions],
];

export function showTable(data, selection) {
  if (data.checkpoints.length === 0) return hide("checkpoints");
  const tbody = element("tbody");
  const rows = data.checkpoints.map((checkpoint, row) => ({checkpoint, made: element("tr", {"data-row": row}, COLUMNS.map(([title, value], i) => {
    const shown = value(checkpoint);
    if (i === 0) return element("td", {class: "mono"}, element("button", {type: "button", click: () => selection.move(row, worstPosition(checkpoint), true)}, shown));
    if (i === 1) return element("td", {class: `text verdict ${isBad(shown) ? "bad" : ""}`}, `${VERDICTS[shown]?.[0] ?? ""} ${shown}`);
    return element("td", {}, title === "cosine" && shown !== null ? String(Number(shown.toPrecision(9))) : shortNumber(shown));
  }))}));
  tbody.append(...rows.map(row => row.made));

  const heads = COLUMNS.map(([title, value], i) => {
    const head = element("th", {class: i < 2 ? "text" : null, scope: "col"}, element("button", {type: "button", click: () => {
      const down = head.getAttribute("aria-sort") !== "descending";
      for (const other of heads) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const key = row => value(row.checkpoint) ?? -1;
      const sorted = [...rows].sort((a, b) => typeof key(a) === "number" ? key(a) - key(b) : String(key(a)).localeCompare(String(key(b)), undefined, {numeric: true}));
      tbody.append(...(down ? sorted.reverse() : sorted).map(row => row.made));
    }}, title));
    return head;
  });

  const name = element("input", {type: "search", placeholder: "Name contains…", "aria-label": "Name contains", input: filter});
  const verdict = element("select", {"aria-label": "Verdict", change: filter}, element("option", {value: ""}, "every verdict"),
                          [...new Set(data.checkpoints.map(c => c.verdict))].map(each => element("option", {value: each}, each)));
  function filter() {
    for (const {checkpoint, made} of rows)
      made.hidden = !checkpoint.name.includes(name.value) || (verdict.value !== "" && checkpoint.verdict !== verdict.value);
  }
  bodyOf("checkpoints").append(element("div", {class: "tools"}, name, verdict),
    element("div", {class: "scroll"}, element("table", {}, element("thead", {}, element("tr", {}, heads)), tbody)),
    element("p", {class: "hint"}, "* worst own error over its bound"));
  selection.listen(() => rows.forEach(({made}, row) => made.classList.toggle("now", row === selection.row)));
}

// Where there is most to see of a checkpoint.
export function worstPosition(checkpoint) {
  const sides = [checkpoint.reference, checkpoint.suspect].filter(side => ratioOf(side) !== null).sort((a, b) => ratioOf(b) - ratioOf(a));
  const [side] = sides;
  if (side !== undefined && side.first_defect_position !== null) return side.worst_position;
  return checkpoint.positions > 0 ? checkpoint.worst_position : side?.worst_position ?? 0;
}
