// "Why this backend": the selection of /server_info, in the shape of `fovea explain --json`.
import { getJson } from "./api.js";
import { byId, bytes, el, plural, setText } from "./dom.js";

export async function showBackends() {
  const panel = byId("why");
  try {
    const info = await getJson("server_info");
    panel.replaceChildren(...explanation(info));
    setText(byId("why-note"), deviceText(info.device));
    return info;
  } catch (error) {
    panel.replaceChildren(el("p", { class: "empty" }, error.status === 401
      ? "The server requires an API key: enter it in the settings." : `Not known: ${error.message}`));
    return null;
  }
}

const words = { full: "Full attention", mla: "Latent attention (MLA)" };
const kindText = (kind) => words[kind] ?? (kind[0].toUpperCase() + kind.slice(1)).replaceAll("_", " ");
const backendText = (backend) => (backend.version ? `${backend.name} (${backend.version})` : backend.name);
const same = (a, b) => a !== null && b !== null && a.name === b.name && a.version === b.version;

function deviceText(device) {
  if (!device) return "";
  const capability = device.compute_capability > 0 ? ` ${(device.compute_capability / 10).toFixed(1)}` : "";
  return device.name ? `${device.name} (${device.kind}${capability})` : `${device.kind.toUpperCase()}${capability}`;
}

function explanation(info) {
  const out = info.effective ? [effects(info.effective)] : [];
  out.push(...info.kinds.map((kind) => kindBlock(kind, info.model?.attentions ?? [])));
  for (const warning of info.warnings ?? []) out.push(el("p", { class: "warning" }, warning));
  if (info.resolved?.length > 0) out.push(decisions(info.resolved));
  return out;
}

// The engine's settings that follow from it; an encoder has no KV cache.
function effects(e) {
  const rows = [
    ["Weights", `${bytes(e.weight_bytes)} of ${e.dtype}`],
    ["KV cache", e.kv_bytes ? `${bytes(e.kv_bytes)} of ${e.kv_cache_dtype}: ${plural(e.kv_tokens, "token")}` : null],
    ["Pages", e.page_size ? `${plural(e.page_size, "token")} each, layout ${e.kv_layout}` : null],
    ["Context", `${plural(e.max_seq_len, "token")} at most`],
    ["GPU memory", e.gpu_memory_total > 0
      ? `${bytes(Object.values(e.gpu_memory).reduce((sum, part) => sum + part, 0))} of ${bytes(e.gpu_memory_total)}` : null],
    ["CUDA graphs", e.cuda_graph_bs?.length > 0 ? `for up to ${plural(e.cuda_graph_bs.at(-1), "request")}` : null],
  ].filter(([, text]) => text !== null);
  return el("dl", { class: "effects" }, ...rows.map(([name, text]) => el("div", {}, el("dt", {}, name), el("dd", {}, text))));
}

function kindBlock(kind, attentions) {
  const shapes = kind.attentions.map((i) => attentions[i]).filter(Boolean);
  const block = el("div", { class: "kind" },
    el("h3", {}, kindText(kind.kind)),
    ...shapes.map((shape) => el("p", { class: "shape" }, shapeText(shape))));
  // Both phases usually have the same answer, which is then shown once.
  if (JSON.stringify(kind.prefill) === JSON.stringify(kind.decode)) block.append(phaseBlock("prefill and decode", kind.prefill));
  else block.append(phaseBlock("prefill", kind.prefill), phaseBlock("decode", kind.decode));
  return block;
}

function shapeText(shape) {
  const out = [plural(shape.layers, "layer"), `${shape.heads} heads on ${shape.kv_heads} of KV`,
    shape.head_dim === shape.v_head_dim ? `head size ${shape.head_dim}` : `head size ${shape.head_dim} and ${shape.v_head_dim}`];
  if (shape.window !== null) out.push(`window ${shape.window}`);
  if (shape.chunk !== null) out.push(`chunk ${shape.chunk}`);
  if (shape.sink) out.push("sinks");
  return out.join(" · ");
}

function phaseBlock(name, phase) {
  const refused = phase.candidates.filter((c) => c.reasons.length > 0);
  const able = phase.candidates.filter((c) => c.reasons.length === 0 && !same(c, phase.backend));
  const block = el("div", { class: "phase" },
    el("p", { class: "choice" },
      el("span", { class: "phase-name" }, name),
      el("span", { class: phase.backend ? "backend mono chosen" : "backend mono none" }, phase.backend ? backendText(phase.backend) : "none")),
    el("p", { class: "because" }, phase.why || phase.error || ""));
  if (phase.why && phase.error) block.append(el("p", { class: "warning" }, phase.error));
  if (phase.if_built) block.append(el("p", { class: "because" }, `A build with all kernels would take ${backendText(phase.if_built)}.`));
  if (able.length + refused.length > 0) {
    const summary = [able.length > 0 ? `${able.length} could serve too` : null, refused.length > 0 ? `${refused.length} can't` : null];
    block.append(el("details", { open: phase.backend === null },
      el("summary", {}, "The others: ", summary.filter(Boolean).join(", ")),
      el("ul", { class: "candidates" }, ...able.map(ableRow), ...refused.map(refusedRow))));
  }
  return block;
}

const ableRow = (candidate) => el("li", { class: "able" },
  el("span", { class: "mono" }, backendText(candidate)),
  el("span", { class: "verdict" }, "can serve it, but is later in the order"));

function refusedRow(candidate) {
  return el("li", { class: "refused" },
    el("span", { class: "mono" }, backendText(candidate)),
    el("ul", {}, ...candidate.reasons.map((reason) => el("li", {},
      el("span", { class: "reason" }, reason.text),
      reason.fix ? el("span", { class: "fix" }, ...withFlags(reason.fix)) : null))));
}

// Keeps command-line flags on one line: browsers would break them after the dashes.
function withFlags(text) {
  return text.split(/((?<=^|\s)-{1,2}[a-z][^\s:;,]*)/).map((piece, i) => (i % 2 === 1 ? el("code", { class: "flag" }, piece) : piece));
}

function decisions(resolved) {
  const rows = resolved.map((one) => el("tr", {},
    el("th", { scope: "row", class: "mono" }, one.key), el("td", { class: "mono" }, one.value), el("td", {}, one.from)));
  return el("details", { class: "decisions" }, el("summary", {}, `All decisions (${resolved.length})`),
    el("div", { class: "table-scroll", tabindex: "0", role: "region", "aria-label": "Decisions" },
      el("table", {},
        el("thead", {}, el("tr", {}, ...["Setting", "Value", "Why"].map((title) => el("th", { scope: "col" }, title)))),
        el("tbody", {}, ...rows))));
}
