// What else is known of a run: what it really did, the files it changed, its prompt, what it costs.
import { html, useState } from "../app/html.js";
import { get, of } from "../app/api.js";
import { link } from "../app/address.js";
import { clean, count, money, plural } from "../app/format.js";
import { useRequest } from "../app/request.js";
import { Bar, Numbers } from "../parts/chart.js";
import { counts, Diff } from "../parts/diff.js";
import { Fold, Output } from "../parts/fold.js";
import { Chip, Empty, Loading } from "../parts/status.js";

const TONES = { finished: "ok", failed: "bad", denied: "warn", unknown: "warn", running: "live" };

function Below({ tree, setTree }) {
  return html`<label class="check"><input type="checkbox" checked=${tree} onChange=${(event) => setTree(event.target.checked)} /> with all runs below it</label>`;
}

function CallRow({ call, cwd }) {
  const short = (path) => (path.startsWith(cwd + "/") ? path.slice(cwd.length + 1) : path);
  return html`<tr>
    <td><${Chip} tone=${TONES[call.status]}>${call.status}<//></td>
    <td><b>${call.tool}</b></td>
    <td class="grow">
      ${call.command && html`<code>${clean(call.command)}</code>`}
      ${call.exit_code !== null && html`<${Chip} tone=${call.exit_code ? "bad" : "ok"}>exit ${call.exit_code}<//>`}
      ${call.writes.map((file) => html`<div>${file.status} <code>${short(file.path)}</code></div>`)}
      ${call.reads.map((path) => html`<div>read <code>${short(path)}</code></div>`)}
      ${call.hosts.map((host) => html`<div>reached <code>${host}</code></div>`)}
      ${call.denied && html`<div class="bad">denied: ${call.denied}</div>`}
    </td>
    <td class="muted">${call.approval || call.allowed || ""}</td>
  </tr>`;
}

export function Effects({ row }) {
  const [tree, setTree] = useState(false);
  const [found, problem] = useRequest(() => get(of("runs", row.id, "effects"), { tree }), [row.id, tree, row.tool_uses, row.state]);
  if (!found) return html`<${Loading} problem=${problem} />`;
  const runs = found.runs.filter((each) => each.turns.length);
  return html`<div class="tab">
    <${Below} tree=${tree} setTree=${setTree} />
    ${!runs.length && html`<${Empty} title="Nothing yet">Files, commands, hosts and denials appear here, from what the tools did and not from what the agent says.<//>`}
    ${runs.map(
      (each) => html`${tree && html`<h2><a href=${link("run", each.run_id)}>${each.agent}</a></h2>`}
        ${each.turns.map((turn) => html`<h3>Turn ${turn.turn}</h3><div class="scroll"><table class="effects"><tbody>${turn.calls.map((call) => html`<${CallRow} call=${call} cwd=${row.cwd} />`)}</tbody></table></div>`)}`,
    )}
  </div>`;
}

export function Changes({ row }) {
  const [tree, setTree] = useState(true);
  const [found, problem] = useRequest(() => get(of("runs", row.id, "diff"), { tree }), [row.id, tree, row.tool_uses, row.state]);
  if (!found) return html`<${Loading} problem=${problem} />`;
  return html`<div class="tab">
    <${Below} tree=${tree} setTree=${setTree} />
    ${found.branch && html`<p class="about">Its commits are on <code>${found.branch}</code>.</p>`}
    ${!found.files.length && html`<${Empty} title="No file was changed">What this run writes appears here as a diff.<//>`}
    ${found.files.map((file) => {
      const { add, cut } = counts(file.diff);
      const head = html`<${Chip}>${file.status}<//><code>${file.path}</code><span class="plus">+${add}</span><span class="minus">−${cut}</span>`;
      return html`<${Fold} key=${file.path} kind="file" head=${head} open=${found.files.length < 6}>
        ${file.note && html`<p class="about">${file.note}</p>`}${file.diff && html`<${Diff} text=${file.diff} />`}
      <//>`;
    })}
  </div>`;
}

export function Prompt({ row }) {
  const [found, problem] = useRequest(() => get(of("runs", row.id)), [row.id, row.state]);
  if (!found) return html`<${Loading} problem=${problem} />`;
  return html`<div class="tab">
    <h2>Task${found.asked_by && html` <small>from ${found.asked_by}</small>`}</h2>
    <${Output} text=${found.task} />
    <h2>Prompt of the agent <small>${count(Math.round(found.prompt.length / 4))} tokens, estimated</small></h2>
    <${Output} text=${found.prompt || "(none of its own)"} />
    <p><a href=${link("agents", row.agent)}>The whole system prompt of ${row.agent}, with token counts</a></p>
    <h2>Tools <small>${found.tools.length}</small></h2>
    <p class="chips">${found.tools.map((tool) => html`<${Chip}>${tool}<//>`)}</p>
    ${found.unknown_effects.length > 0 && html`<h2>Nobody knows what these did</h2>
      <p class="about">They had begun when its process died.</p><ul>${found.unknown_effects.map((call) => html`<li><code>${clean(call)}</code></li>`)}</ul>`}
  </div>`;
}

const UNITS = { usd: money, tokens: count };

function spentOf(kind, found) {
  if (kind === "usd") return found.spent.cost_usd;
  if (kind === "tokens") return found.spent.input + found.spent.output + found.spent.cache_write;
  return null;
}

export function RunCost({ row, record }) {
  const [found, problem] = useRequest(() => get(of("runs", row.id)), [row.id, row.turns, row.state]);
  if (!found) return html`<${Loading} problem=${problem} />`;
  const { spent } = found;
  const own = row.usage;
  const all = spent.input + spent.cache_read + spent.cache_write;
  return html`<div class="tab">
    <${Numbers} numbers=${[
      ["Whole tree", money(spent.cost_usd)],
      ["This run", money(own.cost_usd)],
      ["New input", count(spent.input)],
      ["Output", count(spent.output)],
      ["From cache", all ? Math.round((100 * spent.cache_read) / all) + "%" : "–"],
      ["In context now", record.talk.context ? count(record.talk.context) : "–"],
    ]} />
    <h2>Budget</h2>
    ${!Object.keys(found.budget).length && html`<p class="about">None was given to this run. Those above it and the settings still hold.</p>`}
    ${Object.entries(found.budget).map(([kind, limit]) => {
      const used = spentOf(kind, found);
      const show = UNITS[kind] || String;
      if (used === null) return html`<p class="about">${kind}: ${show(limit)}</p>`;
      return html`<${Bar} label=${kind} part=${used / limit} text=${`${show(used)} of ${show(limit)}`} />`;
    })}
    <p class="about">${plural(row.compactions, "time")} the conversation was shortened.</p>
  </div>`;
}
