// The page at `/`: about the model, and a box to try it. It loads nothing from elsewhere.
#pragma once

namespace lockstep::server {

inline constexpr const char* kPage = R"html(<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Lockstep</title>
<style>
:root { --back: #ffffff; --text: #1c2127; --dim: #67707c; --line: #d9dee4; --panel: #f6f7f9;
  --accent: #2563c9; --on-accent: #ffffff; --good: #16803c; --bad: #c4232b; }
@media (prefers-color-scheme: dark) {
  :root { --back: #14171b; --text: #e4e7eb; --dim: #98a2ae; --line: #2c323a; --panel: #1c2026;
    --accent: #6ea8ff; --on-accent: #10141a; --good: #4ec07a; --bad: #ff6b6b; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 28px 24px 60px; max-width: 880px; background: var(--back);
  color: var(--text); font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
header { display: flex; align-items: baseline; gap: 12px; flex-wrap: wrap; margin-bottom: 14px; }
h1 { margin: 0; font-size: 24px; line-height: 1.3; overflow-wrap: anywhere; }
#status { color: var(--dim); font-size: 14px; }
#status::before { content: ""; display: inline-block; width: 9px; height: 9px; margin-right: 7px;
  border-radius: 50%; background: var(--dim); }
#status.ok::before { background: var(--good); } #status.bad::before { background: var(--bad); }
dl { display: grid; grid-template-columns: repeat(auto-fill, minmax(180px, 1fr)); gap: 10px 18px;
  margin: 0 0 24px; background: var(--panel); border-radius: 8px; padding: 14px 18px; }
dt { color: var(--dim); font-size: 12.5px; }
dd { margin: 0; overflow-wrap: anywhere; font-variant-numeric: tabular-nums; }
dl div:last-child { grid-column: span 2; }
dl div:last-child dd { font: 13.5px/1.7 ui-monospace, "SF Mono", Menlo, Consolas, monospace; }
label { color: var(--dim); font-size: 13.5px; }
textarea, input { font: inherit; color: inherit; background: var(--panel); padding: 8px 11px;
  border: 1px solid var(--line); border-radius: 8px; }
textarea { display: block; width: 100%; min-height: 84px; resize: vertical; margin-top: 4px; }
textarea:focus, input:focus, button:focus-visible { outline: 2px solid var(--accent);
  outline-offset: 1px; }
.tools { display: flex; gap: 10px 16px; align-items: center; flex-wrap: wrap; margin: 12px 0 20px; }
.tools input[type=number] { width: 76px; padding: 5px 8px; margin-left: 6px; }
.tools input[type=checkbox] { margin-right: 6px; accent-color: var(--accent); }
.tools .buttons { display: flex; gap: 10px; margin-left: auto; }
button { font: inherit; font-weight: 600; padding: 7px 18px; border-radius: 8px; cursor: pointer;
  border: 1px solid var(--line); background: var(--panel); color: inherit; }
button.main { background: var(--accent); border-color: var(--accent); color: var(--on-accent); }
button:disabled { opacity: .45; cursor: default; }
#answer { min-height: 120px; margin: 0; padding: 14px 18px; border: 1px solid var(--line);
  border-radius: 8px; white-space: pre-wrap; overflow-wrap: anywhere;
  font: 15px/1.6 ui-monospace, "SF Mono", Menlo, Consolas, monospace; }
#answer:empty::before { content: "The answer appears here."; color: var(--dim); }
#answer.running::after { content: "▍"; color: var(--accent); }
#speed { margin: 8px 2px 0; color: var(--dim); font-size: 13.5px; min-height: 20px;
  font-variant-numeric: tabular-nums; }
#speed.bad { color: var(--bad); }
@media (max-width: 560px) { body { padding: 16px 12px; } h1 { font-size: 20px; } }
</style></head>
<body>
<header><h1 id="name">Lockstep</h1><div id="status">connecting</div></header>
<dl id="card"></dl>
<form id="form">
<label for="prompt">Prompt</label>
<textarea id="prompt" maxlength="32768" spellcheck="false">Write a haiku about rain</textarea>
<div class="tools">
<label>Tokens<input id="tokens" type="number" min="1" value="256"></label>
<label>Temperature<input id="temperature" type="number" min="0" max="2" step="0.1" value="0"></label>
<label>Seed<input id="seed" type="number" step="1" placeholder="any"></label>
<label id="chat-label" hidden><input id="chat" type="checkbox">As a chat</label>
<div class="buttons"><button id="stop" type="button" disabled>Stop</button>
<button id="go" class="main">Generate</button></div>
</div>
</form>
<pre id="answer" aria-live="polite"></pre>
<p id="speed"></p>
<script>
const $ = id => document.getElementById(id);
const bytes = n => n >= 1e9 ? (n / 1e9).toFixed(2) + " GB" : (n / 1e6).toFixed(1) + " MB";
const lasted = s => s < 60 ? s.toFixed(0) + " s" : s < 3600 ? (s / 60).toFixed(0) + " min"
  : (s / 3600).toFixed(1) + " h";
const reasons = {end: "the model ended it", stop: "the model ended it",
  length: "as many tokens as asked for", context: "the context is full"};
const post = (path, body, signal) => fetch(path, {method: "POST", signal,
  headers: {"Content-Type": "application/json"}, body: JSON.stringify(body)});

async function about() {
  try {
    const h = await (await fetch("/health")).json();
    $("name").textContent = document.title = h.model;
    $("status").className = h.status === "ok" ? "ok" : "bad";
    $("status").textContent = h.status === "ok" ? (h.active_job ? "busy" : "ready") : h.status;
    if (h.queue_length) $("status").textContent += `, ${h.queue_length} waiting`;
    $("status").textContent += `, up ${lasted(h.uptime_seconds)}`;
    $("chat-label").hidden = !h.chat;
    const rows = {Architecture: h.architecture, Quantization: h.quantization, Device: h.device,
      Context: h.context_length + " tokens", Vocabulary: h.vocabulary_size + " tokens",
      Memory: bytes(h.memory_used_bytes), Fingerprint: h.fingerprint};
    $("card").replaceChildren(...Object.entries(rows).map(([name, value]) => {
      const row = document.createElement("div");
      row.append(Object.assign(document.createElement("dt"), {textContent: name}),
        Object.assign(document.createElement("dd"), {textContent: value}));
      return row;
    }));
  } catch {
    $("status").className = "bad";
    $("status").textContent = "not reachable";
  }
}

// Server-sent events of an answer: calls on(name, data) for each.
async function events(answer, on) {
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const {done, value} = await reader.read();
    if (done) return;
    text += value;
    for (let end; (end = text.indexOf("\n\n")) >= 0; text = text.slice(end + 2)) {
      const lines = text.slice(0, end).split("\n");
      const field = name => lines.find(l => l.startsWith(name + ": "))?.slice(name.length + 2);
      const data = field("data");
      if (data && data !== "[DONE]") on(field("event"), JSON.parse(data));
    }
  }
}

let job = null;
let abort = null;

async function generate() {
  const chat = $("chat").checked && !$("chat-label").hidden;
  const id = "page-" + Math.random().toString(36).slice(2) + Date.now().toString(36);
  const settings = {temperature: Number($("temperature").value)};
  if ($("tokens").value) settings.max_tokens = Number($("tokens").value);
  if ($("seed").value) settings.seed = Number($("seed").value);
  $("answer").textContent = "";
  $("answer").className = "running";
  $("speed").className = "";
  $("speed").textContent = "waiting";
  $("go").disabled = true;
  $("stop").disabled = false;
  abort = new AbortController();
  job = chat ? null : id;
  const asked = performance.now();
  let count = 0, first = 0, ended = "", decoding = 0;
  const show = () => {
    // The worker knows how long it took; until it says so, by when the tokens came here.
    const seconds = decoding / 1e3 || (performance.now() - first) / 1e3;
    const timed = decoding ? count : count - 1;
    const rate = timed > 0 && seconds > 0 ? (timed / seconds).toFixed(1) : "–";
    $("speed").textContent = `${count} tokens, ${rate} tokens/s, first after ` +
      `${(first - asked).toFixed(0)} ms` + (ended && `; ${ended}`);
  };
  const token = text => {
    if (!count++) first = performance.now();
    $("answer").append(text);
    show();
  };
  const failed = problem => {
    ended = problem.code === "CANCELLED" ? "stopped" : problem.message;
    if (count) show(); else $("speed").textContent = ended;
    if (problem.code !== "CANCELLED") $("speed").className = "bad";
  };
  try {
    const answer = chat
      ? await post("/v1/chat/completions", {...settings, stream: true,
          messages: [{role: "user", content: $("prompt").value}]}, abort.signal)
      : await post("/execute", {...settings, job_id: id, prompt: $("prompt").value}, abort.signal);
    if (!answer.ok) throw (await answer.json()).error;
    await events(answer, (name, data) => {
      if (data.error || name === "error") return failed(data.error ?? data);
      if (chat) job = data.id;
      const choice = data.choices?.[0];
      if (name === "token") token(data.t);
      else if (choice?.delta.content) token(choice.delta.content);
      decoding = data.decode_time_ms ?? decoding;
      const reason = data.stop_reason ?? choice?.finish_reason;
      if (reason) { ended = reasons[reason] ?? reason; if (count) show(); }
    });
  } catch (problem) {
    failed(problem.name === "AbortError" ? {code: "CANCELLED"} : problem);
  }
  $("answer").className = "";
  $("go").disabled = false;
  $("stop").disabled = true;
  about();
}

$("form").addEventListener("submit", event => { event.preventDefault(); generate(); });
$("prompt").addEventListener("keydown", event => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) $("form").requestSubmit();
});
$("stop").addEventListener("click", () => job ? post("/cancel", {job_id: job}) : abort.abort());
about();
setInterval(about, 5000);
</script>
</body></html>
)html";

}  // namespace lockstep::server
