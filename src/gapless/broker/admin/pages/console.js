// The console: each view is drawn from the last figures; what a person types stays as it is.
// A broker sends its own figures, the console of a whole network those of each broker that answers.

import { ask, askJson, token, watch } from "./stream.js";
import { drawKnowledge, drawNetwork } from "./pictures.js";

const $ = (id) => document.getElementById(id);
const tabs = [...document.querySelectorAll("[role=tab]")];
const [TAILS_MAX, WHYS_MAX] = [3, 20];
const BOUNDS = { exact: "", "at least": "≥ ", "at most": "≤ ", about: "≈ " };
const memory = { session: null, before: {}, now: {}, cells: [], isNetwork: false, stops: {} };

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
    made.append(text instanceof Node ? wrap(text, kindOf) : element("td", text, kindOf));
  }
  return made;
}

function wrap(node, kindOf) {
  const made = element("td", undefined, kindOf);
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

// Rows are changed cell by cell, and only where they differ: a button keeps its focus and its click.
function showRows(body, rows) {
  rows.forEach((made, place) => {
    const there = body.rows[place];
    if (!there) body.append(made);
    else [...made.cells].forEach((cell, column) => { if (!cell.isEqualNode(there.cells[column])) there.cells[column].replaceWith(cell); });
  });
  while (body.rows.length > rows.length) body.lastElementChild.remove();
}

function button(text, kindOf, data) {
  const made = element("button", text, kindOf);
  made.type = "button";
  Object.assign(made.dataset, data);
  return made;
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

// Events a second at one broker since the figures before; null if that is not known.
function rateOf(name, pick) {
  const [before, now] = [memory.before[name], memory.now[name]];
  if (!before || !now || now.at_s <= before.at_s || pick(now) < pick(before)) return null;
  return (pick(now) - pick(before)) / (now.at_s - before.at_s);
}

function rateOfAll(pick) {
  const known = Object.keys(memory.now).map((name) => rateOf(name, pick)).filter((each) => each !== null);
  return known.length ? sum(known, (each) => each) : null;
}

const sum = (list, pick) => list.reduce((total, each) => total + pick(each), 0);
const brokers = () => Object.values(memory.now);
const topics = () => Object.values(Object.fromEntries(brokers().flatMap((each) => each.topics).map((each) => [each.name, each])));
const subscriptions = () => brokers().flatMap((each) => each.subscriptions.map((one) => ({ ...one, at: each.broker })));

function show(state) {
  const parts = state.network ? state.brokers : { [state.broker]: { figures: state, problem: "" } };
  const answering = Object.entries(parts).filter(([, each]) => each.figures);
  memory.isNetwork = Boolean(state.network);
  document.body.classList.toggle("network", memory.isNetwork);
  // A stream that begins again repeats figures: the ones before it stay, for rates.
  for (const [name, each] of answering) {
    if (memory.now[name]?.at_s !== each.figures.at_s) memory.before[name] = memory.now[name];
  }
  memory.now = Object.fromEntries(answering.map(([name, each]) => [name, each.figures]));
  if (answering.length) memory.cells = cellsOf(parts);
  else memory.cells = memory.cells.map((cell) => ({ ...cell, brokers: cell.brokers.map((each) => ({ ...each, health: "down" })) }));
  showHealth(state, parts);
  showNetwork();
  showBrokers(parts);
  showTopics();
  showSubscriptions();
}

// The cells as all brokers know them; of a whole network the health is whether a broker answers.
function cellsOf(parts) {
  const cells = new Map(brokers().flatMap((each) => each.cells).map((cell) => [cell.name, cell]));
  if (!memory.isNetwork) return [...cells.values()];
  const health = (name) => (memory.now[name] ? "up" : name in parts ? "down" : "far");
  return [...cells.values()].map((cell) => (
    { ...cell, brokers: cell.brokers.map((each) => ({ ...each, health: health(each.name) })) }));
}

function showHealth(state, parts) {
  const [up, all] = [brokers().filter((each) => each.ready).length, Object.keys(parts).length];
  const one = state.ready ? `ready at ${state.address}` : "not ready";
  $("broker").textContent = memory.isNetwork ? "network" : state.broker;
  $("health").textContent = memory.isNetwork ? `${up} of ${all} brokers answer` : one;
  $("health").className = up === all ? "good" : "bad";
}

function showNetwork() {
  const [published, delivered] = [rateOfAll((each) => each.published), rateOfAll((each) => each.delivered)];
  const own = memory.isNetwork ? [] : brokers().flatMap((each) => [["Sync", `${each.sync_ms.toFixed(2)} ms`], ["Up for", time(each.uptime_s)]]);
  figures($("figures"), [
    ["Published", rate(published)], ["Delivered", rate(delivered)], ["Clients", count(sum(brokers(), (each) => each.clients))],
    ["Subscriptions", count(sum(brokers(), (each) => each.subscription_count))], ["Disk", size(sum(brokers(), (each) => each.disk_bytes))], ...own,
  ]);
  const notes = Object.fromEntries(Object.keys(memory.now).map((name) => (
    [name, `${rate(rateOf(name, (each) => each.published))} in, ${rate(rateOf(name, (each) => each.delivered))} out`])));
  drawNetwork($("network-picture"), memory.cells, notes, memory.isNetwork ? isLinked : () => undefined);
}

// What a broker says of its neighbours, as [name, health].
const neighbours = (broker) => broker.cells.flatMap((cell) => cell.brokers)
  .filter((each) => each.health === "up" || each.health === "down").map((each) => [each.name, each.health]);

function isLinked(cell, other) {
  const said = [[cell, other], [other, cell]].flatMap(([one, two]) => one.brokers.flatMap((each) => (memory.now[each.name]
    ? neighbours(memory.now[each.name]).filter(([name]) => two.brokers.some((far) => far.name === name)) : [])));
  return said.length ? said.some(([, health]) => health === "up") : undefined;
}

function showBrokers(parts) {
  showRows($("broker-rows"), Object.entries(parts).sort().map(([name, { figures: each, problem }]) => {
    if (!each) return row([[name], [element("span", "down", "state broken")], [problem], ...Array(7).fill([""])]);
    const links = neighbours(each);
    const down = links.filter(([, health]) => health === "down").map(([other]) => other);
    const word = each.ready ? "ready" : "not ready";
    return row([
      [name], [element("span", word, `state ${each.ready ? "ready" : "broken"}`)], [each.address],
      [rate(rateOf(name, (one) => one.published)), "number"], [rate(rateOf(name, (one) => one.delivered)), "number"],
      [count(each.clients), "number"], [count(each.subscription_count), "number"],
      [`${links.length - down.length} of ${links.length}${down.length ? `, none to ${down.join(", ")}` : ""}`, down.length ? "lagging" : ""],
      [size(each.disk_bytes), "number"], [time(each.uptime_s), "number"],
    ]);
  }));
  const pubends = new Set(brokers().flatMap((each) => Object.keys(each.pubends)));
  if (pubends.size) choose($("knowledge-pubend"), [...pubends].sort());
}

function showTopics() {
  const named = (topic) => subscriptions().filter((each) => each.topic === topic);
  const published = (topic) => (broker) => Object.entries(broker.pubends)
    .filter(([name]) => topic.pubends.some((each) => each.name === name))
    .reduce((total, [, each]) => total + (each.published || 0), 0);
  showRows($("topic-rows"), topics().map((topic) => row([
    [button(topic.name, "link", { topic: topic.name })], [topic.service], [hosts(topic.name).join(", ")],
    [count(sum(brokers(), published(topic))), "number"], [rate(rateOfAll(published(topic))), "number"],
    [count(named(topic.name).length), "number"],
    [count(sum(named(topic.name), (each) => each.pending)), "number"],
  ])));
  const names = topics().map((each) => each.name);
  for (const id of ["publish-topic", "tail-topic", "why-topic"]) if (names.length) choose($(id), names);
}

const hosts = (name) => [...new Set(topics().find((each) => each.name === name)?.pubends.map((each) => each.host))];

// What a request about a topic says to the console of a whole network: which broker is meant.
const hostOf = (topic) => (memory.isNetwork ? { broker: hosts(topic)[0] ?? "" } : {});

function showSubscriptions() {
  showRows($("subscription-rows"), subscriptions().map((each) => {
    const mark = element("span", each.state, `state ${each.state.split(" ")[0]}`);
    if (each.last_contact_s !== null && !each.attached) mark.title = `last contact ${time(each.last_contact_s)} ago`;
    if (each.query) mark.title += `, by query ${each.query}`;
    const bytes = (each.pending_bytes ? BOUNDS[each.pending_bytes_is] : "") + size(each.pending_bytes);
    return row([
      [button(each.name, "link", { name: each.name, topic: each.topic })], [mark], [BOUNDS[each.pending_is] + count(each.pending), each.pending ? "number lagging" : "number"],
      [bytes, "number"], [time(each.oldest_pending_s), "number"], [rate(each.rate), "number"],
      [each.last_gap ? gapButton(each) : count(each.gaps), "number"], [count(each.unacknowledged), "number"], [each.topic], [each.at],
      [each.condition || "everything", "code"],
    ]);
  }));
  const [shown, unlisted] = [subscriptions(), sum(brokers(), (each) => each.subscriptions_unlisted)];
  $("unlisted").textContent = unlisted ? `${count(unlisted)} more: gapless subscriptions lists all.` : "";
  if (!shown.length) $("unlisted").textContent = "There are no named subscriptions here.";
  const names = [...new Set(shown.map((each) => each.name))];
  if ([...$("why-names").options].map((each) => each.value).join("\n") !== names.join("\n")) {
    $("why-names").replaceChildren(...names.map((name) => element("option", name)));
  }
}

// --- a gap: how to fill it from a lake ------------------------------------------------------------

const quote = (text) => `'${text.replaceAll("'", "'\\''")}'`;

function gapButton(each) {
  const made = button(`${count(each.gaps)}: fill`, "small", { gap: `${each.at} ${each.name}` });
  made.title = `How to get back what ${each.name} was told to be lost`;
  made.setAttribute("aria-controls", "gap");
  return made;
}

function showGap(event) {
  const key = event.target.dataset.gap;
  const each = key && subscriptions().find((one) => `${one.at} ${one.name}` === key);
  if (!each) return;
  const lost = each.last_gap.match(/"start": (\d+), "end": (\d+)/);
  const when = (tick) => new Date(Number(BigInt(tick) >> 10n) / 1000).toISOString().replace("T", " ").slice(0, 23);
  $("gap-about").textContent = `The last gap that ${each.name} was told: events published from ${when(lost[1])} to ${when(lost[2])} UTC.`;
  $("gap-command").textContent = ["gapless pipeline replay", quote(each.topic), ...(each.condition ? [quote(each.condition)] : []),
    "--lake LAKE --url", quote(memory.now[each.at].url), "--gap", quote(each.last_gap)].join(" ");
  $("gap").hidden = false;
  $("gap-command").focus();
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
  if (name === "tail") checkCondition();
  if (name === "why") offer();
}

function stop(name) {
  memory.stops[name]?.();
  delete memory.stops[name];
}

// --- the tail ------------------------------------------------------------------------------------

// What the brokers that host a topic say of the newest events that match, as one answer.
async function newest(topic, where) {
  const asked = memory.isNetwork ? hosts(topic).slice(0, TAILS_MAX).map((broker) => ({ broker })) : [{}];
  const answers = await Promise.allSettled(asked.map((each) => askJson("/console/check", { topic, where, ...each })));
  const found = answers.filter((each) => each.value).map((each) => each.value);
  if (!found.length) throw answers[0]?.reason ?? new Error("no broker that hosts the topic is known");
  const tick = (each) => BigInt(each.event.slice(each.event.lastIndexOf(":") + 1));
  return found.length < 2 || !found[0].ok ? found[0] : {
    ...found[0], matching: sum(found, (each) => each.matching), of: sum(found, (each) => each.of),
    notes: found[0].notes.filter((note) => found.every((each) => !each.of || each.notes.includes(note))),
    newest: found.flatMap((each) => each.newest).sort((one, two) => (tick(two) > tick(one) ? 1 : -1)),
  };
}

// One event as a line of a list; its button asks why.
function eventLine(each) {
  const item = element("li");
  item.append(button("why?", "link", { event: each.event }), element("span", ` ${each.event} `), JSON.stringify(each.attributes));
  return item;
}

let checking;
function checkCondition() {
  clearTimeout(checking);
  checking = setTimeout(async () => {
    const shown = $("tail-check");
    if (!$("tail-topic").value) return;
    try {
      const found = await newest($("tail-topic").value, $("tail-where").value);
      shown.className = found.ok ? "" : "bad";
      shown.textContent = found.ok
        ? [`${found.text}: matches ${count(found.matching)} of the newest ${count(found.of)} events.`, ...found.notes].join("\n")
        : `${found.problem}\n${found.caret}`;
      $("tail-button").disabled = !found.ok;
      if (found.ok && !memory.stops.tail) $("tail-events").replaceChildren(...found.newest.map(eventLine));
    } catch (problem) {
      shown.textContent = problem.message;
    }
  }, 200);
}

function watchTail(event) {
  event?.preventDefault();
  stop("tail");
  $("tail-events").replaceChildren();
  let [matching, seen] = [0, 0];
  const query = { topic: $("tail-topic").value, where: $("tail-where").value };
  const take = (found) => {
    matching += found.matching;
    seen += found.seen;
    $("tail-count").textContent = `${count(matching)} of ${count(seen)} events matched since you began to watch.`;
    for (const each of found.events) {
      $("tail-events").prepend(eventLine(each));
    }
    while ($("tail-events").children.length > 200) $("tail-events").lastChild.remove();
  };
  const tell = (problem) => { $("tail-count").textContent = problem.message; };
  // Of a whole network each host is asked for its own pubends; a browser opens six connections.
  const asked = memory.isNetwork ? hosts(query.topic).slice(0, TAILS_MAX).map((broker) => ({ ...query, broker, hosted: 1 })) : [query];
  const stops = asked.map((each) => watch("/console/tail", each, take, tell));
  memory.stops.tail = () => stops.forEach((each) => each());
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
    const found = await (await ask("/console/publish", hostOf($("publish-topic").value), { method: "POST", body, headers })).json();
    said.replaceChildren(`Durable as ${found.event}. `, button("why?", "link", { event: found.event, topic: $("publish-topic").value }));
  } catch (problem) {
    said.className = "bad-text";
    said.textContent = problem instanceof SyntaxError ? `The attributes are no JSON object: ${problem.message}` : problem.message;
  }
}

// Brokers by their distance from the pubend's host, so that what is asked for travels up the page.
function distances(host) {
  const cellOf = (name) => memory.cells.find((cell) => cell.brokers.some((each) => each.name === name));
  const near = (cell) => memory.cells.filter((each) => each.links.includes(cell.name) || cell.links.includes(each.name));
  const far = new Map();
  let front = [cellOf(host)].filter(Boolean);
  for (let hops = 0; front.length; hops += 1) {
    front.forEach((cell) => cell.brokers.forEach((each) => far.set(each.name, hops)));
    front = [...new Set(front.flatMap(near))].filter((cell) => !far.has(cell.brokers[0].name));
  }
  return far;
}

// Brokers of a whole network that do not answer have a lane without knowledge.
function silentLanes(lanes) {
  if (!memory.isNetwork || !lanes.length) return [];
  const [{ start, end }] = lanes;
  const silent = memory.cells.flatMap((cell) => cell.brokers).filter((each) => each.health === "down" && !lanes.some((lane) => lane.broker === each.name));
  return silent.map(({ name }) => ({ broker: name, isSilent: true, start, end, horizon: null, acknowledged: 0, nacks: 0, asking: 0, asked: [], runs: [] }));
}

function watchKnowledge() {
  stop("knowledge");
  const pubend = $("knowledge-pubend").value;
  if (!pubend || $("knowledge").hidden) return;
  const before = new Map();
  memory.stops.knowledge = watch("/console/knowledge", { pubend }, (lanes) => {
    const host = topics().flatMap((each) => each.pubends).find((each) => each.name === pubend)?.host;
    const far = distances(host);
    lanes.push(...silentLanes(lanes));
    lanes.sort((one, two) => (far.get(one.broker) ?? 99) - (far.get(two.broker) ?? 99) || (one.broker < two.broker ? -1 : 1));
    for (const lane of lanes) {
      const last = before.get(lane.broker) ?? lane;
      lane.nacksNow = lane.nacks - last.nacks;
      lane.hasAcknowledged = lane.acknowledged > last.acknowledged;
      lane.hops = far.get(lane.broker) ?? 0;
      before.set(lane.broker, lane);
    }
    drawKnowledge($("knowledge-picture"), lanes, host);
    const behind = lanes.filter((each) => each.horizon !== null).map((each) => (each.end - each.horizon) / 1024 / 1e6);
    figures($("knowledge-figures"), [
      ["Settled", behind.length ? `${Math.max(...behind).toFixed(1)} s ago` : "no subscribers here"],
      ["Ticks asked for", count(sum(lanes, (each) => each.asking))], ["Nacks so far", count(sum(lanes, (each) => each.nacks))],
      ["Events shown", count(Math.max(0, ...lanes.map((lane) => lane.runs.filter((run) => run[0] === "D").length)))],
    ]);
  });
}

// The way to Why from a list: what is not given is chosen there.
function askWhy(topic, { name = "", event = "" }) {
  $("why-topic").value = topic;
  [$("why-subscription").value, $("why-event").value, $("why-where").value] = [name, event, ""];
  select("why");
  explainWay();
}

const why = (query) => askJson("/console/why", { topic: $("why-topic").value, event: $("why-event").value.trim(), where: $("why-where").value, ...query });

function explained(found) {
  const verdict = element("p", undefined, "verdict");
  verdict.append(element("b", found.verdict), `: ${found.reason}`);
  const steps = element("ol");
  steps.append(...found.steps.map((step) => {
    const item = element("li");
    item.append(element("b", step.broker), `: ${step.what}`);
    return item;
  }));
  return [verdict, steps];
}

const described = (found) => element("pre", `${found.event} ${found.attributes ? JSON.stringify(found.attributes) : ""}`);

// Without an event: the newest of the topic, to choose from.
async function offerEvents(topic) {
  const found = await newest(topic, "");
  const list = element("ol", undefined, "events");
  list.append(...found.newest.map(eventLine));
  const text = found.newest.length ? `Which event? The newest of ${topic}:` : `No event of ${topic} is kept here. Give its PUBEND:TICK, which its receipt has.`;
  return [element("p", text), list];
}

// Without a subscription: what became of the event for each of the topic.
async function explainAll(topic) {
  const names = [...new Set(subscriptions().filter((each) => each.topic === topic).map((each) => each.name))];
  if (!names.length) return [element("p", `No named subscription of ${topic} is known here.`)];
  const found = await Promise.all(names.slice(0, WHYS_MAX).map((name) => why({ subscription: name })));
  const body = element("tbody");
  body.append(...found.map((each, place) => row([
    [button(names[place], "link", { name: names[place], event: each.event })], [element("span", each.verdict, "verdict")], [each.reason, "text"]])));
  const [table, scroll] = [element("table"), element("div", undefined, "scroll")];
  table.append(body);
  scroll.append(table);
  const rest = names.length > WHYS_MAX ? [element("p", `Of ${count(names.length)} subscriptions these are the first.`)] : [];
  return [described(found[0]), scroll, ...rest];
}

// An empty view offers events as soon as there is a topic.
function offer() {
  const isEmpty = !["why-subscription", "why-event", "why-where"].some((id) => $(id).value);
  if (!$("why").hidden && $("why-topic").value && isEmpty) explainWay();
}

async function explainWay(event) {
  event?.preventDefault();
  const [answer, topic, name] = [$("why-answer"), $("why-topic").value, $("why-subscription").value];
  answer.replaceChildren(element("p", "asking …"));
  try {
    if (!$("why-event").value.trim() && !$("why-where").value) answer.replaceChildren(...await offerEvents(topic));
    else if (!name) answer.replaceChildren(...await explainAll(topic));
    else {
      const found = await why({ subscription: name });
      answer.replaceChildren(...explained(found), described(found));
    }
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
  $("health").textContent = `no answer from the ${memory.isNetwork ? "console" : "broker"}; trying again`;
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
$("subscription-rows").addEventListener("click", showGap);
$("subscription-rows").addEventListener("click", ({ target: { dataset } }) => { if (dataset.name) askWhy(dataset.topic, dataset); });
$("topic-rows").addEventListener("click", ({ target: { dataset: { topic } } }) => {
  if (!topic) return;
  $("tail-topic").value = topic;
  select("tail");
  watchTail();
});
for (const [id, topic] of [["tail-events", "tail-topic"], ["publish-answer", "publish-topic"]]) {
  $(id).addEventListener("click", ({ target: { dataset } }) => { if (dataset.event) askWhy($(topic).value, dataset); });
}
$("why-answer").addEventListener("click", ({ target: { dataset } }) => {
  if (dataset.event) askWhy($("why-topic").value, { name: $("why-subscription").value, ...dataset });
});
$("gap-close").addEventListener("click", () => { $("gap").hidden = true; });
$("knowledge-pubend").addEventListener("change", watchKnowledge);
$("why-form").addEventListener("submit", explainWay);
$("why-topic").addEventListener("change", offer);
const wanted = location.hash.slice(1);
select(tabs.some((tab) => tab.getAttribute("aria-controls") === wanted) ? wanted : "network");
begin();
