// `fovea serve` for tests in node: starts it on a free port and waits until it is ready.
import { spawn } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";

export const SKIPPED = 77; // SKIP_RETURN_CODE in CMakeLists.txt

export function skip(why) {
  console.log(`SKIPPED: ${why}`);
  process.exit(SKIPPED);
}

/// import() of a package that npm may not have installed, or that this Node is too old for.
export async function need(name) {
  const file = new URL(`node_modules/${name}/package.json`, import.meta.url);
  const wanted = existsSync(file) && /\d+/.exec(JSON.parse(readFileSync(file, "utf8")).engines?.node ?? "");
  if (wanted && Number(process.versions.node.split(".")[0]) < Number(wanted[0]))
    return skip(`${name} needs Node ${wanted[0]}, and this is ${process.version}`);
  try {
    return await import(name);
  } catch (error) {
    if (error.code !== "ERR_MODULE_NOT_FOUND") throw error;
    return skip(`${name} is not installed; run npm ci in tests/serve`);
  }
}

export async function startServer(program, ...flags) {
  const child = spawn(program, ["serve", "--port", "0", ...flags], { stdio: ["ignore", "pipe", "pipe"] });
  const server = { child, log: "" };
  const end = () => child.kill("SIGKILL");
  process.on("exit", end);
  await new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error(`fovea serve is not ready after 60 s:\n${server.log}`)), 60_000);
    const read = (data) => {
      server.log += data;
      const found = /^.*\bready\b.*?(http:\/\/[^\s:]+:\d+)/im.exec(server.log);
      if (found) [server.url] = [found[1]], clearTimeout(timer), resolve();
    };
    child.stdout.on("data", read);
    child.stderr.on("data", read);
    child.on("exit", (code) => reject(new Error(`fovea serve exited with ${code}:\n${server.log}`)));
  });
  server.stop = () =>
    new Promise((resolve) => {
      process.off("exit", end);
      child.removeAllListeners("exit");
      if (child.exitCode !== null) return resolve(child.exitCode);
      child.on("exit", (code) => resolve(code));
      child.kill("SIGTERM");
    });
  return server;
}

/// The sum of a metric's samples with these labels ("" = any).
export async function metric(server, name, labels = "") {
  const text = await (await fetch(`${server.url}/metrics`)).text();
  const rows = text.split("\n").filter((row) => (row.startsWith(`${name}{`) || row.startsWith(`${name} `)) && row.includes(labels));
  if (rows.length === 0) throw new Error(`/metrics has no ${name} ${labels}`);
  return rows.reduce((sum, row) => sum + Number(row.slice(row.lastIndexOf(" "))), 0);
}

export async function waitIdle(server, milliseconds) {
  const names = ["vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc"];
  for (const end = Date.now() + milliseconds; ; ) {
    const values = await Promise.all(names.map((name) => metric(server, name)));
    if (values.every((value) => value === 0)) return;
    if (Date.now() > end) throw new Error(`not idle after ${milliseconds} ms: ${names} = ${values}`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}
