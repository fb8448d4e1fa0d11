#pragma once
// One run of load against a server.
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "fovea/result.h"
#include "load/api.h"
#include "load/dataset.h"
#include "load/outcome.h"
#include "load/statistics.h"
#include "load/target.h"

namespace fovea::load {

struct BenchConfig {
  Target target;
  std::string endpoint;              ///< "" = the backend's own
  RequestOptions request;            ///< model "" = the first of /v1/models
  std::string api_key;               ///< "" = none
  std::vector<std::string> headers;  ///< "NAME=VALUE", of every request
  DatasetConfig dataset;
  double request_rate = std::numeric_limits<double>::infinity();  ///< a second
  double burstiness = 1;
  int max_concurrency = 0;  ///< 0 = no limit
  int num_warmups = 0;
  double ready_timeout_s = 0;      ///< how long a server that is not there yet is waited for
  double request_timeout_s = 600;  ///< without a byte
  bool keep_texts = false;
  Goodput goodput;

  std::string endpoint_or_default() const;
};

/// What the user sees while it runs.
struct BenchWatch {
  std::function<bool()> stop = [] { return false; };
  std::function<void(const std::string&)> say = [](const std::string&) {};  ///< a line
  std::function<void(size_t)> progress = [](size_t) {};
};

struct BenchResult {
  std::string model;  ///< as asked for
  bool stopped = false;
  bool prompts_are_ids = false;
  std::vector<Outcome> outcomes;  ///< one a request, in the order of the starts
  Summary summary;
  double client_cpu_s = 0;  ///< of this process, during the run
};

/// Asks for the model, tries one request, warms up, runs. A server that is absent or refuses the first
/// request is an error; later failures are in the outcomes.
Result<BenchResult> run_bench(const BenchConfig& config, const BenchWatch& watch);

}  // namespace fovea::load
