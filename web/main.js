// Puts the page together.
import {showCell} from "./cell.js";
import {Selection, readData} from "./data.js";
import {hide} from "./dom.js";
import {showDrift} from "./drift.js";
import {showExplained} from "./explained.js";
import {showMap} from "./map.js";
import {showStory} from "./story.js";
import {showTable, worstPosition} from "./table.js";
import {showTokens} from "./tokens.js";

// The row to begin with: the first defect, else the worst of all.
function begin(data, selection) {
  const defect = data.first_defect;
  const row = defect === null ? undefined : data.rowOf.get(defect.checkpoint);
  if (row !== undefined) return selection.move(row, defect.position);
  if (data.page.opened.length > 0) return selection.move(data.rowOf.get(data.page.opened[0].checkpoint), data.page.opened[0].position);
  const there = data.checkpoints.findIndex(checkpoint => checkpoint.positions > 0);
  if (there >= 0) selection.move(there, worstPosition(data.checkpoints[there]));
  else hide("cell");
}

const data = await readData();
const selection = new Selection();
showStory(data);
showExplained(data);
const map = showMap(data, selection);
showTokens(data, selection);
showCell(data, selection);
showDrift(data, selection);
showTable(data, selection);
begin(data, selection);
window.lockstep = {data, selection, map};  // for tests, and for the curious
document.documentElement.dataset.ready = "true";
