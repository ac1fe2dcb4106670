// Models by engines: what came of them in one run, and what changed since another.
import {CHANGES, STATUSES, pairsOf} from "./dashboard_data.js";
import {bodyOf, element} from "./dom.js";

const MOST_MODELS = 300, MOST_ENGINES = 60;

const buttons = () => [...document.querySelectorAll("#matrix td button")];

function cellOf(shown, pairs, model, engine) {
  const now = pairs.filter(pair => pair.is !== undefined);
  const changes = Object.values(CHANGES).map(change => [change, pairs.filter(pair => pair.change === change).length]).filter(([, count]) => count > 0);
  const worst = now.reduce((most, {is}) => most === null || is.status.rank > most.rank ? is.status : most, null);
  const words = worst === null ? "not run" : STATUSES.map(status => [status, now.filter(({is}) => is.status === status).length])
    .filter(([, count]) => count > 0).map(([status, count]) => now.length === 1 ? status.word : `${count} ${status.word}`).join(", ");
  const pressed = shown.cell !== null && shown.cell.model === model && shown.cell.engine === engine;
  const button = element("button", {type: "button", "aria-pressed": String(pressed), click: () => {
    const place = buttons().indexOf(button);
    shown.cell = pressed ? null : {model, engine};
    shown.tell();
    buttons()[place].focus();  // the table was made anew
  }}, element("span", {class: "mark"}, worst?.mark ?? "–"), words,
    changes.map(([change, count]) => element("span", {class: "change"}, `${change.mark} ${pairs.length > 1 ? count + " " : ""}${change.word}`)));
  return element("td", {class: `status ${worst?.word ?? "none"}`}, button);
}

export function showMatrix(shown) {
  shown.listen(() => {
    const pairs = pairsOf(shown.run, shown.before);
    const cells = new Map();
    for (const pair of pairs) {
      const row = cells.get(pair.any.model) ?? new Map();
      cells.set(pair.any.model, row.set(pair.any.engine, [...(row.get(pair.any.engine) ?? []), pair]));
    }
    const engines = [...new Set(pairs.map(pair => pair.any.engine))];
    const models = [...cells.keys()];
    const table = element("table", {}, element("thead", {}, element("tr", {}, element("th", {scope: "col"}, "model"),
      engines.slice(0, MOST_ENGINES).map(engine => element("th", {scope: "col", class: "text"}, engine)))),
      element("tbody", {}, models.slice(0, MOST_MODELS).map(model => element("tr", {}, element("th", {scope: "row"}, model), engines.slice(0, MOST_ENGINES).map(engine => {
        const here = cells.get(model).get(engine);
        return here === undefined ? element("td", {class: "status none"}, "") : cellOf(shown, here, model, engine);
      })))));
    const beyond = Math.max(0, models.length - MOST_MODELS) + Math.max(0, engines.length - MOST_ENGINES);
    bodyOf("matrix").replaceChildren(pairs.length === 0 ? element("p", {}, "The run has no results.") : element("div", {class: "scroll"}, table),
      beyond === 0 ? "" : element("p", {class: "hint"}, `${beyond} more models and engines have no room here; the results below have them.`));
  });
}
