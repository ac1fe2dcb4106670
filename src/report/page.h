// The fixed parts of the HTML page: its style and the few lines that sort and filter its table.
#pragma once

namespace lockstep::report {

inline constexpr const char* kPageStyle = R"css(
:root { --back: #ffffff; --text: #1c2127; --dim: #67707c; --line: #e1e5ea; --panel: #f6f7f9;
  --good: #16803c; --bad: #c4232b; --drift: #2563c9; --rounding: #5b93d6; --warn: #b06a00; }
@media (prefers-color-scheme: dark) {
  :root { --back: #14171b; --text: #e4e7eb; --dim: #98a2ae; --line: #2c323a; --panel: #1c2026;
    --good: #4ec07a; --bad: #ff6b6b; --drift: #6ea8ff; --rounding: #4f7fbd; --warn: #e5a44a; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 28px 24px 60px; max-width: 1080px; background: var(--back);
  color: var(--text); font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
header { border-left: 6px solid var(--bad); padding: 4px 0 4px 18px; margin-bottom: 22px; }
header.parity { border-color: var(--good); }
h1 { margin: 0; font-size: 24px; line-height: 1.3; overflow-wrap: anywhere; }
header p { margin: 6px 0 0; color: var(--dim); }
h2 { font-size: 17px; margin: 34px 0 8px; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 4px 18px; margin: 0;
  background: var(--panel); border-radius: 8px; padding: 14px 18px; }
dt { color: var(--dim); } dd { margin: 0; overflow-wrap: anywhere; }
p.hint { margin: 0 0 6px; color: var(--dim); font-size: 13px; }
.chart { overflow-x: auto; background: var(--panel); border-radius: 8px; }
svg { width: 100%; min-width: 620px; height: auto; display: block; }
svg .grid { stroke: var(--line); } svg .tick { stroke: var(--dim); }
svg .axis { fill: var(--dim); font-size: 11.5px; }
svg .limit { stroke: var(--bad); stroke-dasharray: 5 4; }
svg .marker { stroke: var(--bad); stroke-width: 1.5; }
svg path { fill: none; stroke: var(--drift); stroke-width: 2; opacity: .75; }
svg circle { fill: var(--dim); }
svg .exact { fill: var(--good); } svg .rounding { fill: var(--rounding); }
svg .drift { fill: var(--drift); } svg .defect, svg .garbage { fill: var(--bad); }
svg .differs { fill: var(--warn); } svg .close { fill: var(--drift); }
svg circle.reference { fill: none; stroke: var(--dim); stroke-width: 1.4; }
svg circle.reference.defect, svg circle.reference.garbage { stroke: var(--bad); }
.tools { display: flex; gap: 10px; margin: 0 0 8px; flex-wrap: wrap; }
.tools input, .tools select { font: inherit; color: inherit; background: var(--panel);
  border: 1px solid var(--line); border-radius: 6px; padding: 5px 9px; }
.tools input { flex: 1; min-width: 140px; }
.scroll { overflow-x: auto; border: 1px solid var(--line); border-radius: 8px; }
table { border-collapse: collapse; width: 100%; font-size: 13.5px; white-space: nowrap; }
th, td { padding: 5px 11px; text-align: right; font-variant-numeric: tabular-nums; }
th:first-child, td:first-child, th:nth-child(2), td:nth-child(2) { text-align: left; }
th { position: sticky; top: 0; background: var(--panel); color: var(--dim); font-weight: 600;
  cursor: pointer; user-select: none; }
th[aria-sort=ascending]::after { content: " ↑"; } th[aria-sort=descending]::after { content: " ↓"; }
tbody tr { border-top: 1px solid var(--line); }
td:first-child { font-family: ui-monospace, "SF Mono", Menlo, Consolas, monospace; }
td .tag { border-radius: 4px; padding: 1px 7px; background: var(--panel); }
.tag.exact { color: var(--good); } .tag.rounding { color: var(--rounding); }
.tag.drift, .tag.close { color: var(--drift); } .tag.differs { color: var(--warn); }
.tag.defect, .tag.garbage { color: #fff; background: var(--bad); }
.tag.missing { color: var(--dim); }
tr.first td { background: color-mix(in srgb, var(--bad) 10%, transparent); }
footer { margin-top: 40px; color: var(--dim); font-size: 13px; }
@media (max-width: 560px) { body { padding: 16px 12px; } dl { grid-template-columns: 1fr; }
  dd { margin-bottom: 6px; } h1 { font-size: 20px; } }
)css";

inline constexpr const char* kPageScript = R"js(
const table = document.querySelector("table.all");
if (table) {
  const body = table.tBodies[0];
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => head.addEventListener("click", () => {
    const down = head.getAttribute("aria-sort") !== "descending";
    heads.forEach(other => other.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const key = row => {
      const cell = row.cells[column];
      return "key" in cell.dataset ? Number(cell.dataset.key) : cell.textContent;
    };
    const rows = [...body.rows].sort((a, b) => {
      const x = key(a), y = key(b);
      return typeof x === "number" ? x - y : x.localeCompare(y, undefined, {numeric: true});
    });
    if (down) rows.reverse();
    body.append(...rows);
  }));
  const name = document.querySelector(".tools input");
  const verdict = document.querySelector(".tools select");
  const filter = () => {
    for (const row of body.rows) {
      const named = row.cells[0].textContent.includes(name.value);
      row.hidden = !named || (verdict.value !== "" && row.cells[1].textContent !== verdict.value);
    }
  };
  name.addEventListener("input", filter);
  verdict.addEventListener("change", filter);
}
)js";

}  // namespace lockstep::report
