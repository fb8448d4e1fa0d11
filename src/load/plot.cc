#include "load/plot.h"

#include <algorithm>
#include <cmath>
#include <cstdarg>
#include <cstdio>

#include "load/report.h"

namespace fovea::load {
namespace {

// On both backgrounds, text has a contrast of at least 4.5 : 1 and lines of at least 3 : 1.
struct Palette {
  const char *ground, *panel, *ink, *faint, *grid, *line, *other;
};
constexpr Palette kLight = {"#ffffff", "#f6f7f9", "#1c2330", "#5b6472", "#dde1e7", "#1f6feb", "#b25a00"};
constexpr Palette kDark = {"#12161d", "#1a2029", "#e8ecf2", "#a3adba", "#2d3541", "#6cb0ff", "#f0a35a"};

constexpr const char* kShapes =
    "text{font-family:system-ui,-apple-system,'Segoe UI',Roboto,sans-serif;font-size:12px}"
    ".title{font-size:18px;font-weight:600}.head{font-size:14px;font-weight:600}.grid{stroke-width:1}"
    ".line,.other{fill:none;stroke-width:2;stroke-linejoin:round}.other{stroke-dasharray:5 4}"
    ".area{fill-opacity:.16;stroke:none}";

constexpr double kWidth = 960, kMargin = 24, kGap = 20;
constexpr double kPanelHeight = 240, kTop = 76;
constexpr double kPanelWidth = (kWidth - 2 * kMargin - kGap) / 2;

__attribute__((format(printf, 1, 2))) std::string format(const char* pattern, ...) {
  char text[512];
  va_list arguments;
  va_start(arguments, pattern);
  std::vsnprintf(text, sizeof text, pattern, arguments);
  va_end(arguments);
  return text;
}

/// Literal colours: renderers other than browsers (librsvg, Inkscape) ignore variables and draw black.
std::string colours(const Palette& p) {
  return format(
      "text{fill:%s}.title,.head,.value{fill:%s}.ground{fill:%s}.panel{fill:%s}.grid{stroke:%s}"
      ".line{stroke:%s}.area,.dot,.key{fill:%s}.other{stroke:%s}.otherkey{fill:%s}",
      p.faint, p.ink, p.ground, p.panel, p.grid, p.line, p.line, p.other, p.other);
}

std::string style() {
  return "<style>" + std::string(kShapes) + colours(kLight) + "@media(prefers-color-scheme:dark){" +
         colours(kDark) + "}</style>";
}

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '&')
      out += "&amp;";
    else if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (static_cast<unsigned char>(c) >= ' ' && static_cast<unsigned char>(c) < 0x7f)
      out += c;
    else
      out += '?';
  }
  return out;
}

std::string text_at(double x, double y, const char* kind, const char* anchor, std::string_view text) {
  return format("<text x=\"%.1f\" y=\"%.1f\" class=\"%s\" text-anchor=\"%s\">", x, y, kind, anchor) +
         escaped(text) + "</text>\n";
}

std::string line_at(double x1, double y1, double x2, double y2) {
  return format("<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" class=\"grid\"/>\n", x1, y1, x2, y2);
}

/// Three significant digits, integers in full: 0.123, 4.56, 78.9, 1234.
std::string figure(double value) {
  const double size = std::fabs(value);
  return format(size >= 100 ? "%.0f" : size >= 10 ? "%.1f" : size >= 1 ? "%.2f" : "%.3f", value);
}

/// Axis labels need no more digits than the step.
std::string tick_label(double value) {
  return format("%.6g", value + 0.0);  // no -0
}

/// 1, 2 or 5 times a power of ten, so that `range` has about `count` steps.
double nice_step(double range, int count) {
  const double raw = range / count, power = std::pow(10, std::floor(std::log10(raw)));
  for (const double factor : {1.0, 2.0, 5.0})
    if (raw <= factor * power * (1 + 1e-9)) return factor * power;
  return 10 * power;
}

/// Maps values to pixels.
struct Axis {
  double low = 0, high = 1;
  double from = 0, to = 1;  // pixels
  bool logarithmic = false;

  double at(double value) const {
    const auto place = [&](double x) { return logarithmic ? std::log(x) : x; };
    return from + (place(value) - place(low)) / (place(high) - place(low)) * (to - from);
  }

  std::vector<double> ticks(int count) const {
    std::vector<double> values;
    if (logarithmic) {
      const bool few = high / low < 1000;
      const auto last = static_cast<int>(std::floor(std::log10(high)));
      for (auto exponent = static_cast<int>(std::floor(std::log10(low))); exponent <= last; ++exponent)
        for (const double factor : {1.0, 2.0, 5.0}) {
          const double power = std::pow(10, exponent);
          if ((few || factor == 1.0) && power * factor >= low * 0.999 && power * factor <= high * 1.001)
            values.push_back(power * factor);
        }
      return values;
    }
    const double step = nice_step(high - low, count);
    const auto last = static_cast<int64_t>(std::floor(high / step * (1 + 1e-9)));
    for (auto k = static_cast<int64_t>(std::ceil(low / step - 1e-9)); k <= last; ++k)
      values.push_back(static_cast<double>(k) * step);
    return values;
  }
};

struct Panel {
  double x, y, width, height;
  double left() const { return x + 58; }
  double right() const { return x + width - 20; }
  double top() const { return y + 42; }
  double bottom() const { return y + height - 42; }
};

std::string panel_frame(const Panel& panel, std::string_view title) {
  return format("<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" rx=\"8\" class=\"panel\"/>\n",
                panel.x, panel.y, panel.width, panel.height) +
         text_at(panel.x + 16, panel.y + 26, "head", "start", title);
}

std::string horizontal_axis(const Panel& panel, const Axis& axis, std::string_view unit) {
  std::string out;
  for (const double tick : axis.ticks(6)) {
    const double x = axis.at(tick);
    out += line_at(x, panel.bottom(), x, panel.bottom() + 5);
    out += text_at(x, panel.bottom() + 18, "", "middle", tick_label(tick));
  }
  return out + text_at((panel.left() + panel.right()) / 2, panel.bottom() + 34, "", "middle", unit);
}

std::string vertical_axis(const Panel& panel, const Axis& axis, int count, std::string_view unit = {}) {
  std::string out;
  for (const double tick : axis.ticks(count)) {
    const double y = axis.at(tick);
    out += line_at(panel.left(), y, panel.right(), y);
    out += text_at(panel.left() - 8, y + 4, "", "end", tick_label(tick) + std::string(unit));
  }
  return out;
}

/// From the fastest to the slowest; logarithmic if a long tail would compress the rest to the left.
Axis latency_axis(const Panel& panel, const Distribution& values) {
  Axis axis;
  axis.from = panel.left();
  axis.to = panel.right();
  const double fastest = values.sorted_ms.front(), slowest = values.sorted_ms.back();
  axis.logarithmic = values.at(1) > 0 && slowest > 20 * std::max(values.at(50), 1e-6);
  axis.low = axis.logarithmic ? std::max(fastest, values.at(1) / 10) : fastest < slowest / 2 ? 0 : fastest;
  axis.high = slowest;
  if (axis.high - axis.low < 0.05 * axis.high || axis.high <= axis.low) {  // nearly a single value
    axis.low = axis.high * 0.9;
    axis.high = axis.high > 0 ? axis.high * 1.1 : 1;
  }
  return axis;
}

std::string distribution_panel(const Panel& panel, std::string_view title, const Distribution& values) {
  std::string out = panel_frame(panel, title);
  if (values.sorted_ms.empty())
    return out + text_at(panel.x + panel.width / 2, panel.y + panel.height / 2, "", "middle",
                         "nothing was measured");
  const Axis x = latency_axis(panel, values), y{0, 100, panel.bottom(), panel.top()};
  out +=
      vertical_axis(panel, y, 4, " %") + horizontal_axis(panel, x, x.logarithmic ? "ms (logarithmic)" : "ms");
  std::string points;
  constexpr int kPoints = 240;  // about one per two pixels
  for (int i = 0; i <= kPoints; ++i) {
    const double percent = 100.0 * i / kPoints;
    points += format("%.1f,%.1f ", x.at(std::clamp(values.at(percent), x.low, x.high)), y.at(percent));
  }
  out += "<polyline class=\"line\" points=\"" + points + "\"/>\n";
  std::string caption;
  for (const double percent : {50.0, 90.0, 99.0}) {
    const double value = values.at(percent);
    out += format("<circle cx=\"%.1f\" cy=\"%.1f\" r=\"4\" class=\"dot\"/>\n",
                  x.at(std::clamp(value, x.low, x.high)), y.at(percent));
    caption += (caption.empty() ? "" : ", ") + percentile_name(percent) + " " + figure(value);
  }
  return out + text_at(panel.right(), panel.y + 26, "value", "end", caption + " ms");
}

std::string path_of(const Axis& x, const Axis& y, const std::vector<double>& values, double slice) {
  std::string points;
  for (size_t i = 0; i < values.size(); ++i) {
    const double time = std::min((static_cast<double>(i) + 0.5) * slice, x.high);
    points += format("%.1f,%.1f ", x.at(time), y.at(values[i]));
  }
  return points;
}

double largest(const std::vector<double>& values) {
  return values.empty() ? 0 : *std::max_element(values.begin(), values.end());
}

std::string throughput_panel(const Panel& panel, const BenchResult& result) {
  const double duration = std::max(result.summary.duration_s, 1e-3);
  const Timeline line = timeline(result.outcomes, duration, nice_step(duration, 60));
  std::string out = panel_frame(panel, "Throughput over time");
  const Axis x{0, duration, panel.left(), panel.right() - 38};
  const Axis y{0, std::max(largest(line.tokens_per_second) * 1.05, 1.0), panel.bottom(), panel.top()};
  const Axis concurrency{0, std::max(largest(line.concurrency) * 1.05, 1.0), panel.bottom(), panel.top()};
  Panel plotted = panel;
  plotted.width -= 38;  // room for the second scale on the right
  out += vertical_axis(plotted, y, 4) + horizontal_axis(plotted, x, "s since the start");
  for (const double tick : concurrency.ticks(4))
    if (tick == std::floor(tick))
      out += text_at(plotted.right() + 8, concurrency.at(tick) + 4, "otherkey", "start", tick_label(tick));
  const std::string points = path_of(x, y, line.tokens_per_second, line.slice_s);
  const double first = x.at(std::min(line.slice_s / 2, x.high));
  const double last =
      x.at(std::min((static_cast<double>(line.tokens_per_second.size()) - 0.5) * line.slice_s, x.high));
  out += format("<polygon class=\"area\" points=\"%.1f,%.1f ", first, panel.bottom()) + points +
         format("%.1f,%.1f\"/>\n", last, panel.bottom());
  out += "<polyline class=\"line\" points=\"" + points + "\"/>\n<polyline class=\"other\" points=\"" +
         path_of(x, concurrency, line.concurrency, line.slice_s) + "\"/>\n";
  out += text_at(panel.right() - 260, panel.y + 26, "key", "end", "output tokens/s");
  return out +
         text_at(panel.right(), panel.y + 26, "otherkey", "end", "- -  requests in flight (right scale)");
}

std::string heading(const BenchConfig& config, const BenchResult& result) {
  const Summary& summary = result.summary;
  std::string load =
      std::isfinite(config.request_rate) ? figure(config.request_rate) + " requests/s" : "all at once";
  if (config.max_concurrency > 0)
    load += ", at most " + std::to_string(config.max_concurrency) + " at a time";
  const std::string model = result.model.size() > 60 ? result.model.substr(0, 57) + "..." : result.model;
  return text_at(kMargin, 36, "title", "start", "Load on " + model) +
         text_at(kMargin, 58, "", "start",
                 std::to_string(summary.completed) + " of " + std::to_string(result.outcomes.size()) +
                     " requests served, " + std::string(to_string(config.dataset.kind)) + ", " + load + "; " +
                     figure(summary.output_throughput) + " output tokens/s, " +
                     figure(summary.request_throughput) + " requests/s over " + figure(summary.duration_s) +
                     " s");
}

}  // namespace

std::string plot_svg(const BenchConfig& config, const BenchResult& result) {
  const double height = kTop + 3 * kPanelHeight + 2 * kGap + kMargin;
  std::string out = format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" width=\"%.0f\" "
      "height=\"%.0f\" role=\"img\" aria-label=\"Latencies and throughput of a benchmark\">\n",
      kWidth, height, kWidth, height);
  out += style();
  out += "\n<rect class=\"ground\" width=\"100%\" height=\"100%\"/>\n" + heading(config, result);
  constexpr std::string_view kTitles[] = {"Time to first token", "Time per output token",
                                          "Inter-token latency", "End-to-end latency"};
  for (size_t i = 0; i < kMetrics.size(); ++i) {
    const size_t row = i / 2, column = i % 2;
    const Panel panel{kMargin + static_cast<double>(column) * (kPanelWidth + kGap),
                      kTop + static_cast<double>(row) * (kPanelHeight + kGap), kPanelWidth, kPanelHeight};
    out += distribution_panel(panel, kTitles[i], result.summary.of(kMetrics[i]));
  }
  out += throughput_panel({kMargin, kTop + 2 * (kPanelHeight + kGap), kWidth - 2 * kMargin, kPanelHeight},
                          result);
  return out + "</svg>\n";
}

}  // namespace fovea::load
