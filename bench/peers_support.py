"""Measurement for peers.py: interleaved timing, CUDA graphs, a plain read, and a description of the machine."""

import datetime
import importlib.util
import pathlib
import statistics
import subprocess
import time
from dataclasses import dataclass
from typing import Callable, Optional

import torch
import triton
import triton.language as tl

ROOT = pathlib.Path(__file__).resolve().parent.parent
REST_SECONDS = 0.12
TURN_SECONDS = 0.025
SUSTAINED_SECONDS = 1.2
TOLERANCE = 6e-3  # ||out - ref|| / ||ref|| in bf16, of the dequantised cache


@dataclass
class Contender:
    name: str
    make: Callable
    """Returns the call to time; with `graph` a list of calls on disjoint data, captured together."""
    check: Optional[Callable] = None
    """check(call) gives the relative error of a call; None = not to be checked."""
    graph: bool = False


@triton.jit
def read_kernel(data, sink, words, BLOCK: tl.constexpr, UNROLL: tl.constexpr):
    """Loads every 8-byte word once. It writes only for a value that never occurs, so that no load can be optimised away."""
    step = tl.num_programs(0).to(tl.int64) * BLOCK * UNROLL
    total = tl.zeros([BLOCK], tl.int64)
    for first in range(tl.program_id(0).to(tl.int64) * BLOCK * UNROLL, words, step):
        for u in tl.static_range(UNROLL):
            at = first + u * BLOCK + tl.arange(0, BLOCK)
            total |= tl.load(data + at, mask=at < words, other=0, eviction_policy="evict_first")
    found = tl.max(total, 0)
    tl.store(sink, found, mask=found == 0x7ead)


# Programs per multiprocessor (0 = one for each piece of BLOCK * UNROLL words), BLOCK, UNROLL, warps. The fastest depends on
# the size, so all are tried.
READS = ((4, 2048, 4, 16), (8, 1024, 4, 8), (2, 4096, 4, 32), (0, 2048, 4, 8), (0, 4096, 4, 16), (0, 1024, 8, 4), (0, 2048, 8, 8))

FASTEST = {}  # by bytes


def plain_read(pool, count, size):
    """`count` calls that each read `size` disjoint bytes of `pool`, with the fastest of READS."""
    words = pool.view(-1).view(torch.int64)
    sink = torch.zeros(1, dtype=torch.int64, device="cuda")
    processors = torch.cuda.get_device_properties(0).multi_processor_count
    each = size // 8

    def calls(per_processor, block, unroll, warps):
        programs = processors * per_processor or -(-each // (block * unroll))

        def call(i):
            read_kernel[(programs,)](words[i * each:(i + 1) * each], sink, each, BLOCK=block, UNROLL=unroll, num_warps=warps)
        return [lambda i=i: call(i) for i in range(count)]
    if size not in FASTEST:
        FASTEST[size] = min(READS, key=lambda shape: statistics.median(timed(*captured(calls(*shape)))))
    return calls(*FASTEST[size])


def captured(calls):
    """Captures all `calls` in one CUDA graph and returns its replay; there are enough calls that a replay is not short."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())  # where plans were queued
    with torch.cuda.stream(stream):
        for call in calls:
            call()
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    repeats = max(1, 8 // len(calls))
    with torch.cuda.graph(graph, stream=stream):
        for _ in range(repeats):
            for call in calls:
                call()

    def replay(_kept=calls):  # keeps the memory of the graph alive
        graph.replay()
    return replay, repeats * len(calls)


def timed(replay, calls_each):
    """Seconds of single calls in one round."""
    torch.cuda.synchronize()
    time.sleep(REST_SECONDS)
    replay()
    replay()
    seconds = []
    while len(seconds) < 5 or sum(seconds) * calls_each < TURN_SECONDS:
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        replay()
        end.record()
        end.synchronize()
        seconds.append(begin.elapsed_time(end) / 1e3 / calls_each)
    return seconds


def installed(package):
    return importlib.util.find_spec(package) is not None


def relative_error(out, reference):
    return ((out.double() - reference.double()).norm() / reference.double().norm()).item()


def prepared(contenders):
    """(calls to time with the number of calls in each, results so far); contenders that cannot run have {"why_not"}."""
    ready, results = {}, {}
    for contender in contenders:
        try:
            made = contender.make()
            error = None
            if contender.check is not None:
                error = contender.check(made[0] if contender.graph else made)
                if not error < TOLERANCE:
                    raise ValueError(f"is wrong: relative error {error:.2e}")
            ready[contender.name] = captured(made) if contender.graph else (made, 1)
            results[contender.name] = {"error": error}
        except Exception as reason:  # other libraries raise any exception
            results[contender.name] = {"why_not": f"{type(reason).__name__}: {' '.join(str(reason).split())}"[:200]}
    return ready, results


def interleaved(contenders, rounds):
    """{name: {"seconds", "calls", "error"}} or {name: {"why_not"}}, interleaved and with cool-down."""
    ready, results = prepared(contenders)
    seconds = {name: [] for name in ready}
    for turn in range(rounds):
        order = list(ready) if turn % 2 == 0 else list(ready)[::-1]
        for name in order:
            seconds[name] += timed(*ready[name])
    for name, all_of_them in seconds.items():
        results[name].update(seconds=statistics.median(all_of_them), calls=len(all_of_them))
    return results


def sustained(contenders):
    """The same for each alone, after a second of continuous load: the rate under the power limit."""
    ready, results = prepared(contenders)
    for name, (replay, calls_each) in ready.items():
        torch.cuda.synchronize()
        time.sleep(0.5)
        seconds, begun = [], time.perf_counter()
        while time.perf_counter() - begun < SUSTAINED_SECONDS:
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            replay()
            end.record()
            end.synchronize()
            seconds.append(begin.elapsed_time(end) / 1e3 / calls_each)
        results[name].update(seconds=statistics.median(seconds[len(seconds) // 2:]), calls=len(seconds))
    return results


def output_of(*command):
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def describe_machine():
    import fovea
    smi = output_of("nvidia-smi", "--query-gpu=driver_version,power.limit", "--format=csv,noheader").splitlines()[0].split(", ")
    commit = ROOT / "COMMIT"  # for a tree without its git history
    return {
        "date": datetime.date.today().isoformat(),
        "commit": commit.read_text().strip() if commit.exists() else output_of("git", "-C", str(ROOT), "describe", "--always", "--dirty"),
        "device": torch.cuda.get_device_name(),
        "driver": smi[0],
        "power_limit": smi[1] if len(smi) > 1 else "",
        "torch": torch.__version__,
        "triton": triton.__version__,
        "cudnn": torch.backends.cudnn.version(),
        "fovea": fovea.__version__,
        "method": "rest 0.12 s, 2 calls or replays, then 0.025 s of them; medians over the rounds. Sustained: alone for 1.2 s "
                  "after 0.5 s of rest, the median of the second half",
    }
