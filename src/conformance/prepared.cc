#include "conformance/prepared.h"

#include "base/thread_pool.h"
#include "conformance/graph.h"
#include "fovea/attention_backend.h"

namespace fovea::conformance {

Prepared prepare(Case c, ThreadPool& pool) {
  Prepared p;
  p.c = std::move(c);
  p.want = reference(p.c.problem, pool);
  p.textbook = naive(p.c.problem);
  p.uses = uses_of(p.c, p.want, p.textbook);
  if (p.c.second) {
    p.second_want = reference(*p.c.second, pool);
    p.second_textbook = naive(*p.c.second);
  }
  return p;
}

namespace {

std::string judge_all(AttentionBackend& backend, const Prepared& prepared, Pools& pools, Attempt& out) {
  const Case& c = prepared.c;
  if (const std::string differ = find_disagreement(c.problem, prepared.want, prepared.textbook);
      !differ.empty())
    return differ;
  Machine& machine = pools.machine(c.threads);
  std::vector<const Problem*> layers = {&c.problem};
  if (c.second) layers.push_back(&*c.second);
  const std::vector<Output> got = run_layers(backend, layers, c.layout, machine);
  out.launched = got[0].launched;
  std::string failure = judge(c.problem, got[0], prepared.want, prepared.textbook, &out.worst);
  if (!failure.empty()) return failure;
  if (c.second) {
    failure = judge(*c.second, got[1], prepared.second_want, prepared.second_textbook, &out.worst);
    if (!failure.empty()) return "a second layer with the same keys and values: " + failure;
  }
  if (!c.want_lse) {
    const Output without = run(backend, c.problem, c.layout, machine, false);
    if (!without.error.empty()) return "without the LSE: " + without.error;
    Output o = got[0];
    o.lse.clear();
    if (!(without == o)) return "O has other bits when the LSE is not wanted";
  }
  if (c.graph) failure = find_graph_change(backend, c, got[0], machine);
  if (!failure.empty()) return "by a graph: " + failure;
  return c.invariance ? find_change(*c.invariance, backend, c, got[0], pools) : "";
}

}  // namespace

Attempt attempt(AttentionBackend& backend, const Prepared& prepared, Pools& pools) {
  Attempt out;
  out.failure = judge_all(backend, prepared, pools, out);
  return out;
}

}  // namespace fovea::conformance
