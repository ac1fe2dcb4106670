// Puts the page of runs together.
import {CHANGES, STATUSES, Shown, groupsOf, nameOf, pairsOf, readRuns} from "./dashboard_data.js";
import {showMatrix} from "./dashboard_matrix.js";
import {showResults} from "./dashboard_results.js";
import {showTrends} from "./dashboard_trends.js";
import {bodyOf, element, hide, shortNumber} from "./dom.js";

const RUNS_AT_ONCE = 30;

const countsOf = run => STATUSES.map((status, i) => run.counts[i] === 0 ? null : `${run.counts[i]} ${status.word}`).filter(words => words !== null).join(", ") || "no results";
const markOf = run => run.good ? "✓" : run.counts[1] > 0 ? "✕" : "?";

function showHead(shown) {
  shown.listen(() => {
    const {run, before} = shown;
    const story = document.getElementById("story");
    story.className = run.good ? "good" : run.counts[1] > 0 ? "bad" : "unsure";
    story.querySelector("h1").replaceChildren(element("span", {class: "mark"}, markOf(run)), `${run.group}: ${countsOf(run)}`);
    const changed = pairsOf(run, before).filter(pair => pair.change !== null);
    const changes = Object.values(CHANGES).map(change => [change, changed.filter(pair => pair.change === change).length]).filter(([, count]) => count > 0);
    document.getElementById("about").textContent = `${run === shown.runs.at(-1) ? "Newest run" : "Run"} of ${nameOf(run)}, ${run.program}, ${shortNumber(run.seconds)} s` +
      `${run.complete ? "" : "; it was ended before its end"}. ` + (before === null ? "It is the first one." : changed.length === 0 ? `Nothing changed since ${nameOf(before)}.`
        : `Since ${nameOf(before)}: ${changes.map(([change, count]) => `${count} ${change.word}`).join(", ")}.`);
    document.title = `${markOf(run)} ${run.group}: ${countsOf(run)}`;
  });
}

function showChoice(shown) {
  const option = run => element("option", {value: run.number}, `${markOf(run)} ${nameOf(run)}: ${countsOf(run)}`);
  const group = element("select", {id: "group", change: () => {
    shown.group = [...shown.groups.keys()][group.selectedIndex];
    shown.cell = null;
    shown.choose(shown.runs.at(-1));
  }}, [...shown.groups.keys()].map(name => element("option", {}, name)));
  const run = element("select", {id: "run", change: () => shown.choose(shown.runs.find(each => each.number === Number(run.value)))});
  const before = element("select", {id: "before", change: () => {
    shown.before = shown.runs.find(each => String(each.number) === before.value) ?? null;
    shown.tell();
  }});
  bodyOf("choice").append(...(shown.groups.size > 1 ? [element("label", {for: "group"}, "Suite"), group] : []),
    element("label", {for: "run"}, "Run"), run, element("label", {for: "before"}, "held against"), before);
  let filled = null;
  shown.listen(() => {
    if (filled !== shown.group) {
      run.replaceChildren(...shown.runs.toReversed().map(option));
      before.replaceChildren(element("option", {value: ""}, "none"), ...shown.runs.toReversed().map(option));
      filled = shown.group;
    }
    run.value = String(shown.run.number);
    before.value = shown.before === null ? "" : String(shown.before.number);
  });
}

function showRuns(shown) {
  let most = RUNS_AT_ONCE, group = null;
  const show = () => {
    const runs = shown.runs.toReversed();
    bodyOf("runs").replaceChildren(element("div", {class: "scroll"}, element("table", {}, element("thead", {}, element("tr", {},
      element("th", {scope: "col"}, "began (UTC)"), ["commit", "file", "program"].map(title => element("th", {scope: "col", class: "text"}, title)),
      [...STATUSES.map(status => status.word), "s"].map(title => element("th", {scope: "col"}, title)))),
      element("tbody", {}, runs.slice(0, most).map(run => element("tr", {class: run === shown.run ? "now" : null},
        element("td", {}, element("button", {type: "button", "aria-pressed": String(run === shown.run), click: () => {
          shown.choose(run);
          scrollTo({top: 0});
        }}, `${markOf(run)} ${run.time.replace("T", " ").replace(/Z$/, "")}`), run.complete ? null : " (not ended)"),
        element("td", {class: "text mono"}, run.commit?.slice(0, 10) ?? ""), element("td", {class: "text"}, run.file), element("td", {class: "text"}, run.program),
        run.counts.map(count => element("td", {}, String(count))), element("td", {}, shortNumber(run.seconds))))))),
      runs.length <= most ? "" : element("button", {type: "button", click: () => {
        most = most * 4;
        show();
      }}, `Show more: ${runs.length - most} are older`));
  };
  shown.listen(() => {
    if (group !== shown.group) most = RUNS_AT_ONCE;
    group = shown.group;
    show();
  });
}

function showProblems(dashboard) {
  if (dashboard.unreadable.length + dashboard.left_out.length === 0) return hide("problems");
  bodyOf("problems").append(...dashboard.left_out.map(words => element("p", {}, words)));
  if (dashboard.unreadable.length > 0) bodyOf("problems").append(element("p", {}, "Files that cannot be read:"),
    element("dl", {}, dashboard.unreadable.map(file => [element("dt", {}, file.file), element("dd", {}, file.why)])));
}

const dashboard = readRuns();
bodyOf("legend").append(element("dl", {}, STATUSES.map(status => [element("dt", {}, `${status.mark} ${status.word}`), element("dd", {}, status.text)]),
  element("dt", {}, "error / bound"), element("dd", {}, "The largest own error of an operation over what honest rounding explains. Above 1 the operation is wrong."),
  element("dt", {}, "KL"), element("dd", {}, "Kullback-Leibler divergence between the two sides' probabilities of the next token, the mean over positions, in nats.")));
document.querySelector("footer").append(`Made by ${dashboard.program}.`);
if (dashboard.home !== null) document.getElementById("story").before(element("nav", {}, element("a", {href: dashboard.home}, "The worker's page")));
showProblems(dashboard);
if (dashboard.runs.length === 0) {
  document.querySelector("#story h1").textContent = "There are no runs yet";
  document.getElementById("about").textContent = "lockstep check --history FOLDER adds one.";
  for (const id of ["choice", "matrix", "results", "trends", "runs", "legend"]) hide(id);
} else {
  const shown = new Shown(groupsOf(dashboard.runs));
  showHead(shown);
  showChoice(shown);
  showMatrix(shown);
  showResults(shown);
  showTrends(shown);
  showRuns(shown);
  window.lockstep = {dashboard, shown};  // for tests, and for the curious
}
document.documentElement.dataset.ready = "true";
