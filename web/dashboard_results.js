// The results of a run beside those of another: what changed, what fails, or all.
import {nameOf, pairsOf} from "./dashboard_data.js";
import {bodyOf, element, shortNumber} from "./dom.js";

const ROWS_AT_ONCE = 200, LONG_TEXT = 160;

const KEPT = {
  changes: ["what changed", pair => pair.change !== null],
  open: ["what is not passed", pair => pair.is === undefined || pair.is.status.word !== "passed"],
  all: ["all", () => true],
};

// "3.1 (was 0.2)", where the two differ visibly.
function numbers(is, was, field) {
  const now = is === undefined ? "" : shortNumber(is[field]), then = was === undefined ? "" : shortNumber(was[field]);
  return now === then || then === "" ? now : `${now} (was ${then})`;
}

// The first sentence, and the rest to unfold.
function folded(text) {
  const end = text.indexOf(". ") + 1;
  return end === 0 || text.length < LONG_TEXT ? text : element("details", {}, element("summary", {}, text.slice(0, end)), text.slice(end + 1));
}

function lineOf({is, was, any, change}) {
  const status = is?.status;
  return element("tr", {}, element("td", {class: `status ${status?.word ?? "none"}`}, element("span", {class: "mark"}, status?.mark ?? "–"), status?.word ?? "not run"),
    element("td", {class: "text"}, change === null ? "" : `${change.mark} ${change.word}` + (was !== undefined && is !== undefined && was.status !== status ? ` (was ${was.status.word})` : "")),
    element("td", {class: "text id"}, any.id, element("span", {class: "change"}, `${any.model}, ${any.engine}`)), element("td", {class: "text"}, is?.verdict ?? ""), element("td", {}, numbers(is, was, "ratio")), element("td", {}, numbers(is, was, "kl")),
    element("td", {}, is === undefined ? "" : shortNumber(is.seconds)),
    element("td", {class: "text why"}, folded(is?.why ?? ""), is?.report ? [" ", element("a", {href: is.report}, "report")] : null,
            was?.report ? [" ", element("a", {href: was.report}, "report before")] : null));
}

export function showResults(shown) {
  let kept = "changes", most = ROWS_AT_ONCE;
  const choice = element("select", {id: "kept", "aria-label": "Which results", change: () => {
    kept = choice.value;
    most = ROWS_AT_ONCE;
    show();
  }}, Object.entries(KEPT).map(([value, [words]]) => element("option", {value}, words)));
  const search = element("input", {type: "search", placeholder: "Name contains…", "aria-label": "Name contains", input: () => show()});
  const everything = element("button", {type: "button", id: "everything", click: () => {
    shown.cell = null;
    shown.tell();
    choice.focus();
  }});
  const summary = element("p", {class: "hint", role: "status"});
  const place = element("div");
  bodyOf("results").append(element("div", {class: "tools"}, choice, search, everything), summary, place);

  function show() {
    const all = pairsOf(shown.run, shown.before).filter(pair => shown.includes(pair.any));
    const found = all.filter(pair => KEPT[kept][1](pair) && pair.any.id.includes(search.value));
    everything.hidden = shown.cell === null;
    everything.textContent = shown.cell === null ? "" : `Only ${shown.cell.model}, ${shown.cell.engine}: show all`;
    summary.textContent = (shown.before === null ? "There is no other run to hold this one against. " : `Since ${nameOf(shown.before)}: ${all.filter(pair => pair.change !== null).length} of ${all.length} changed. `) +
      `Shown: ${Math.min(most, found.length)} of ${found.length}.`;
    place.replaceChildren(found.length === 0 ? "" : element("div", {class: "scroll"}, element("table", {}, element("thead", {}, element("tr", {},
      ["status", "change", "case", "verdict"].map(title => element("th", {scope: "col", class: "text"}, title)),
      ["error / bound", "KL, nats", "s"].map(title => element("th", {scope: "col"}, title)), element("th", {scope: "col", class: "text"}, "why"))),
      element("tbody", {}, found.slice(0, most).map(lineOf)))),
      found.length <= most ? "" : element("button", {type: "button", click: () => {
        most += 5 * ROWS_AT_ONCE;
        show();
      }}, "Show more"));
  }
  let group = null;
  shown.listen(() => {
    // A first look at runs without changes is for what is open.
    if (group !== shown.group) {
      group = shown.group;
      const pairs = pairsOf(shown.run, shown.before);
      kept = choice.value = ["changes", "open", "all"].find(each => pairs.some(KEPT[each][1])) ?? "all";
    }
    most = ROWS_AT_ONCE;
    show();
  });
}
