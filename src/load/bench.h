#pragma once
// One load run against a server.
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "fovea/result_fwd.h"
#include "fovea/speculative.h"
#include "load/api.h"
#include "load/dataset.h"
#include "load/outcome.h"
#include "load/statistics.h"
#include "load/target.h"

namespace fovea::load {

struct BenchConfig {
  Target target;
  std::string endpoint;              ///< "" = the backend's default
  RequestOptions request;            ///< empty model = the first of /v1/models
  std::string api_key;               ///< "" = none
  std::vector<std::string> headers;  ///< "NAME=VALUE", sent with every request
  DatasetConfig dataset;
  double request_rate = std::numeric_limits<double>::infinity();  ///< requests per second
  double burstiness = 1;
  int max_concurrency = 0;  ///< 0 = no limit
  int num_warmups = 0;
  double ready_timeout_s = 0;      ///< how long to wait for the server to become ready
  double request_timeout_s = 600;  ///< time without a received byte
  bool keep_texts = false;
  Goodput goodput;

  std::string endpoint_or_default() const;
};

/// Callbacks during a run: stop request, messages and progress.
struct BenchWatch {
  std::function<bool()> stop = [] { return false; };
  std::function<void(const std::string&)> say = [](const std::string&) {};  ///< prints a line
  std::function<void(size_t)> progress = [](size_t) {};
};

struct BenchResult {
  std::string model;  ///< the requested model
  bool stopped = false;
  bool prompts_are_ids = false;
  std::vector<Outcome> outcomes;  ///< one per request, in order of start times
  Summary summary;
  std::optional<SpeculativeCounts> drafts;  ///< by the server's /metrics; nullopt = it made none
  double client_cpu_s = 0;                  ///< CPU time of this process during the run
};

/// Queries the model name, sends one test request, warms up, runs. A missing server or a failure of the test
/// request is an error; later failures are in the outcomes.
Result<BenchResult> run_bench(const BenchConfig& config, const BenchWatch& watch);

}  // namespace fovea::load
