// The console: each view is drawn from the last figures; what a person types stays as it is.

import { ask, askJson, token, watch } from "./stream.js";
import { drawKnowledge, drawNetwork } from "./pictures.js";

const $ = (id) => document.getElementById(id);
const tabs = [...document.querySelectorAll("[role=tab]")];
const BOUNDS = { exact: "", "at least": "≥ ", "at most": "≤ ", about: "≈ " };
const memory = { session: null, before: null, state: null, stops: {} };

// --- words ---------------------------------------------------------------------------------------

const count = (number) => Math.round(number).toLocaleString("en");

function size(bytes) {
  if (bytes === null) return "?";
  let shown = bytes;
  for (const unit of ["B", "kB", "MB", "GB", "TB"]) {
    if (shown < 1000 || unit === "TB") return unit === "B" ? `${shown} B` : `${shown.toFixed(1)} ${unit}`;
    shown /= 1000;
  }
}

function time(seconds) {
  if (seconds === null) return "–";
  for (const [name, long] of [["d", 86400], ["h", 3600], ["min", 60]]) {
    if (seconds >= 2 * long) return `${(seconds / long).toFixed(1)} ${name}`;
  }
  return `${seconds.toFixed(1)} s`;
}

const rate = (number) => (number === null ? "–" : `${count(number)}/s`);

function element(kind, text, kindOf) {
  const made = document.createElement(kind);
  if (text !== undefined) made.textContent = text;
  if (kindOf) made.className = kindOf;
  return made;
}

function row(cells) {
  const made = element("tr");
  for (const [text, kindOf] of cells) {
    made.append(text instanceof Node ? wrap(text) : element("td", text, kindOf));
  }
  return made;
}

function wrap(node) {
  const made = element("td");
  made.append(node);
  return made;
}

function figures(list, pairs) {
  list.replaceChildren(...pairs.map(([name, value]) => {
    const made = element("div");
    made.append(element("dt", name), element("dd", value));
    return made;
  }));
}

// A list of choices is changed only if it differs: a person may have it open.
function choose(select, names) {
  if ([...select.options].map((each) => each.value).join("\n") === names.join("\n")) return;
  const before = select.value;
  select.replaceChildren(...names.map((name) => element("option", name)));
  if (names.includes(before)) select.value = before;
  select.dispatchEvent(new Event("change"));
}

// --- views ---------------------------------------------------------------------------------------

function rateOf(name, pick) {
  const { before, state } = memory;
  if (!before || state.at_s <= before.at_s) return null;
  const [old, now] = [pick(before), pick(state)];
  return old === undefined || now < old ? null : (now - old) / (state.at_s - before.at_s);
}

function show(state) {
  memory.before = memory.state;
  memory.state = state;
  $("broker").textContent = state.broker;
  $("health").textContent = state.ready ? `ready at ${state.address}` : "not ready";
  $("health").className = state.ready ? "good" : "bad";
  const [published, delivered] = [rateOf("in", (s) => s.published), rateOf("out", (s) => s.delivered)];
  figures($("figures"), [
    ["Published", rate(published)], ["Delivered", rate(delivered)], ["Clients", count(state.clients)],
    ["Subscriptions", count(state.subscription_count)], ["Disk", size(state.disk_bytes)],
    ["Sync", `${state.sync_ms.toFixed(2)} ms`], ["Up for", time(state.uptime_s)],
  ]);
  drawNetwork($("network-picture"), state, `${rate(published)} in, ${rate(delivered)} out`);
  showTopics(state);
  showSubscriptions(state);
}

function showTopics(state) {
  const named = (topic) => state.subscriptions.filter((each) => each.topic === topic);
  const published = (s, topic) => Object.entries(s.pubends)
    .filter(([name]) => topic.pubends.some((each) => each.name === name))
    .reduce((sum, [, each]) => sum + (each.published || 0), 0);
  $("topic-rows").replaceChildren(...state.topics.map((topic) => row([
    [topic.name], [topic.service], [[...new Set(topic.pubends.map((each) => each.host))].join(", ")],
    [count(published(state, topic)), "number"], [rate(rateOf(topic.name, (s) => published(s, topic))), "number"],
    [count(named(topic.name).length), "number"],
    [count(named(topic.name).reduce((sum, each) => sum + each.pending, 0)), "number"],
  ])));
  const names = state.topics.map((each) => each.name);
  for (const id of ["publish-topic", "tail-topic", "why-topic"]) choose($(id), names);
  choose($("knowledge-pubend"), Object.keys(state.pubends).sort());
}

function showSubscriptions(state) {
  $("subscription-rows").replaceChildren(...state.subscriptions.map((each) => {
    const mark = element("span", each.state, `state ${each.state.split(" ")[0]}`);
    if (each.last_contact_s !== null && !each.attached) mark.title = `last contact ${time(each.last_contact_s)} ago`;
    const bytes = (each.pending_bytes ? BOUNDS[each.pending_bytes_is] : "") + size(each.pending_bytes);
    return row([
      [each.name], [mark], [BOUNDS[each.pending_is] + count(each.pending), each.pending ? "number lagging" : "number"],
      [bytes, "number"], [time(each.oldest_pending_s), "number"], [rate(each.rate), "number"],
      [count(each.gaps), "number"], [count(each.unacknowledged), "number"], [each.topic],
      [each.condition || "everything", "code"],
    ]);
  }));
  $("unlisted").textContent = state.subscriptions_unlisted
    ? `${count(state.subscriptions_unlisted)} more: gapless subscriptions lists all.` : "";
  if (!state.subscriptions.length) $("unlisted").textContent = "There are no named subscriptions at this broker.";
  $("why-names").replaceChildren(...state.subscriptions.map((each) => element("option", each.name)));
}

function select(name) {
  for (const tab of tabs) {
    const chosen = tab.getAttribute("aria-controls") === name;
    tab.setAttribute("aria-selected", chosen);
    tab.tabIndex = chosen ? 0 : -1;
    $(tab.getAttribute("aria-controls")).hidden = !chosen;
  }
  if (location.hash !== `#${name}`) history.replaceState(null, "", `#${name}`);
  if (name === "knowledge") watchKnowledge(); else stop("knowledge");
}

function stop(name) {
  memory.stops[name]?.();
  delete memory.stops[name];
}

// --- the tail ------------------------------------------------------------------------------------

let checking;
function checkCondition() {
  clearTimeout(checking);
  checking = setTimeout(async () => {
    const shown = $("tail-check");
    try {
      const found = await askJson("/console/check", { topic: $("tail-topic").value, where: $("tail-where").value });
      shown.className = found.ok ? "" : "bad";
      shown.textContent = found.ok
        ? [`${found.text}: matches ${count(found.matching)} of the newest ${count(found.of)} events.`, ...found.notes].join("\n")
        : `${found.problem}\n${found.caret}`;
      $("tail-button").disabled = !found.ok;
    } catch (problem) {
      shown.textContent = problem.message;
    }
  }, 200);
}

function watchTail(event) {
  event.preventDefault();
  stop("tail");
  $("tail-events").replaceChildren();
  let [matching, seen] = [0, 0];
  const query = { topic: $("tail-topic").value, where: $("tail-where").value };
  memory.stops.tail = watch("/console/tail", query, (found) => {
    matching += found.matching;
    seen += found.seen;
    $("tail-count").textContent = `${count(matching)} of ${count(seen)} events matched since you began to watch.`;
    for (const each of found.events) {
      const item = element("li");
      item.append(element("span", `${each.event} `), JSON.stringify(each.attributes));
      $("tail-events").prepend(item);
    }
    while ($("tail-events").children.length > 200) $("tail-events").lastChild.remove();
  }, (problem) => { $("tail-count").textContent = problem.message; });
}

// --- publish, knowledge, why ---------------------------------------------------------------------

async function publish(event) {
  event.preventDefault();
  const said = $("publish-answer");
  said.className = "";
  try {
    const attributes = JSON.parse($("publish-attributes").value);
    memory.session ||= await askJson("/console/session");
    const body = JSON.stringify({ topic: $("publish-topic").value, attributes, body: $("publish-body").value });
    const headers = { "X-Gapless-Page": memory.session.page_token, "Content-Type": "application/json" };
    const found = await (await ask("/console/publish", {}, { method: "POST", body, headers })).json();
    said.textContent = `Durable as ${found.event}.`;
    $("why-event").value = found.event;
    $("why-topic").value = $("publish-topic").value;
  } catch (problem) {
    said.className = "bad-text";
    said.textContent = problem instanceof SyntaxError ? `The attributes are no JSON object: ${problem.message}` : problem.message;
  }
}

function watchKnowledge() {
  stop("knowledge");
  const pubend = $("knowledge-pubend").value;
  if (!pubend || $("knowledge").hidden) return;
  memory.stops.knowledge = watch("/console/knowledge", { pubend }, (found) => {
    drawKnowledge($("knowledge-picture"), found);
    const behind = found.horizon === null ? null : (found.end - found.horizon) / 1024 / 1e6;
    figures($("knowledge-figures"), [
      ["Settled", behind === null ? "no subscribers here" : `${behind.toFixed(1)} s ago`],
      ["Ticks asked for", count(found.asking)], ["Questions so far", count(found.nacks)],
      ["Events shown", count(found.runs.filter((run) => run[0] === "D").length)],
    ]);
  });
}

async function explainWay(event) {
  event.preventDefault();
  const answer = $("why-answer");
  answer.replaceChildren(element("p", "asking …"));
  try {
    const found = await askJson("/console/why", {
      topic: $("why-topic").value, subscription: $("why-subscription").value,
      event: $("why-event").value.trim(), where: $("why-where").value,
    });
    const verdict = element("p", undefined, "verdict");
    verdict.append(element("b", found.verdict), `: ${found.reason}`);
    const steps = element("ol");
    steps.append(...found.steps.map((step) => {
      const item = element("li");
      item.append(element("b", step.broker), `: ${step.what}`);
      return item;
    }));
    const about = `${found.event} ${found.attributes ? JSON.stringify(found.attributes) : ""}`;
    answer.replaceChildren(verdict, steps, element("pre", about));
  } catch (problem) {
    answer.replaceChildren(element("p", problem.message, "bad-text"));
  }
}

// --- beginning -----------------------------------------------------------------------------------

async function begin() {
  try {
    memory.session = await askJson("/console/session");
  } catch (problem) {
    if (!problem.refused) {
      lost(problem);
      setTimeout(begin, 1000);
      return;
    }
    $("login").hidden = false;
    $("login-problem").textContent = token.get() ? problem.message : "";
    $("health").textContent = "a token is needed";
    $("token").focus();
    return;
  }
  $("login").hidden = true;
  $("version").textContent = `Version ${memory.session.version}.`;
  stop("figures");
  memory.stops.figures = watch("/console/figures", {}, show, lost);
}

// A broker that was started again has another token for pages: it is asked for when it is needed.
function lost(problem) {
  $("health").textContent = "no answer from the broker; trying again";
  $("health").className = "bad";
  memory.session = null;
  if (problem.refused) begin();
}

tabs.forEach((tab, place) => {
  tab.addEventListener("click", () => select(tab.getAttribute("aria-controls")));
  tab.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const next = tabs[(place + step + tabs.length) % tabs.length];
    select(next.getAttribute("aria-controls"));
    next.focus();
  });
});
document.addEventListener("keydown", (event) => {
  if (event.target.matches("input, textarea, select") || event.ctrlKey || event.metaKey || event.altKey) return;
  const tab = tabs.find((each) => each.dataset.key === event.key);
  if (tab) select(tab.getAttribute("aria-controls"));
  if (event.key === "/") {
    event.preventDefault();
    select("tail");
    $("tail-where").focus();
  }
});
$("login").addEventListener("submit", (event) => {
  event.preventDefault();
  token.set($("token").value.trim());
  begin();
});
$("tail-where").addEventListener("input", checkCondition);
$("tail-topic").addEventListener("change", checkCondition);
$("tail-form").addEventListener("submit", watchTail);
$("publish").addEventListener("submit", publish);
$("knowledge-pubend").addEventListener("change", watchKnowledge);
$("why-form").addEventListener("submit", explainWay);
const wanted = location.hash.slice(1);
select(tabs.some((tab) => tab.getAttribute("aria-controls") === wanted) ? wanted : "network");
begin();
