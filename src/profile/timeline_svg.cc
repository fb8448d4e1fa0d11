#include "profile/timeline_svg.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace fovea::profile {
namespace {

constexpr double kLeft = 20, kWidth = 1160, kBar = 44, kRowHeight = 20;
constexpr const char* kColours[] = {"#4e79a7", "#f28e2b", "#59a14f", "#e15759", "#b07aa1", "#76b7b2",
                                    "#edc948", "#9c755f", "#ff9da7", "#5f6b73", "#86bcb6", "#d37295"};

std::string text_of(const char* format, double value) {
  char text[48];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '&')
      out += "&amp;";
    else if (c == '"')
      out += "&quot;";
    else if (static_cast<unsigned char>(c) >= 0x20)
      out += c;
  }
  return out;
}

std::string micros(double seconds) {
  return text_of(seconds < 1e-3 ? "%.1f" : "%.0f", seconds * 1e6) + " us";
}

class Picture {
 public:
  explicit Picture(const StepTable& table) : table_(table) {}

  std::string draw(const std::string& title) {
    line(kLeft, 26, title, 16, "bold");
    double y = 50;
    line(kLeft, y, "the step, " + micros(table_.seconds) + "; the line is its floor, " + micros(table_.floor),
         12);
    y = bars(y + 8, 0, table_.seconds, 0);
    const auto [begin, end] = middle_layer();
    if (end > begin) {
      const int layer = layer_;
      line(kLeft, y + 14, "layer " + std::to_string(layer) + " of it, " + micros(end - begin), 12);
      y = bars(y + 22, begin, end, 11);
    }
    y = legend(y + 24);
    const std::string height = text_of("%.0f", y + 16);
    return "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"1200\" height=\"" + height +
           "\" viewBox=\"0 0 1200 " + height +
           "\" font-family=\"sans-serif\"><rect width=\"1200\" height=\"" + height +
           "\" fill=\"#ffffff\"/>\n" + out_ + "</svg>\n";
  }

 private:
  void line(double x, double y, const std::string& text, int size, const char* weight = "normal",
            const char* anchor = "start") {
    out_ += "<text x=\"" + text_of("%.1f", x) + "\" y=\"" + text_of("%.1f", y) + "\" font-size=\"" +
            std::to_string(size) + "\" font-weight=\"" + weight + "\" text-anchor=\"" + anchor + "\">" +
            escaped(text) + "</text>\n";
  }

  void box(double x, double y, double width, double height, const std::string& colour,
           const std::string& tip) {
    out_ += "<rect x=\"" + text_of("%.2f", x) + "\" y=\"" + text_of("%.1f", y) + "\" width=\"" +
            text_of("%.2f", width) + "\" height=\"" + text_of("%.1f", height) + "\" fill=\"" + colour + "\"";
    out_ += tip.empty() ? "/>\n" : "><title>" + escaped(tip) + "</title></rect>\n";
  }

  std::string name_of(size_t row) const {
    const StepRow& r = table_.rows[row];
    return !r.op.empty() ? r.op : r.kernels.empty() ? "?" : r.kernels.front();
  }
  static std::string colour_of(size_t row) { return kColours[row % std::size(kColours)]; }

  /// The events between two times as a bar, from x = kLeft to its end, and those of other streams below it.
  /// Names of `font` size where they fit; 0 = none. Returns the y below.
  double bars(double y, double from, double to, int font) {
    const double scale = kWidth / (to - from);
    box(kLeft, y, kWidth, kBar, "#eeeeee", "nothing runs");
    bool beside = false;
    for (const StepEvent& e : table_.events) {
      const double begin = std::max(from, e.beside ? e.begin : e.end - e.own), end = std::min(to, e.end);
      if (end <= begin) continue;
      const double x = kLeft + (begin - from) * scale, width = (end - begin) * scale;
      const double top = e.beside ? y + kBar + 4 : y;
      std::string tip = name_of(e.row) + (e.layer >= 0 ? ", layer " + std::to_string(e.layer) : "") + ": " +
                        micros(e.beside ? e.end - e.begin : e.own) + " from " + micros(e.begin);
      if (!e.kernel.empty()) tip += "; " + e.kernel;
      box(x, top, width, e.beside ? 8 : kBar, colour_of(e.row), tip);
      beside |= e.beside;
      const std::string name = name_of(e.row);
      if (font > 0 && !e.beside && width > 0.62 * font * static_cast<double>(name.size()))
        line(x + width / 2, top + kBar / 2 - 2, name, font, "normal", "middle");
      const std::string time = micros(e.own);
      if (font > 0 && !e.beside && width > 0.62 * font * static_cast<double>(time.size()))
        line(x + width / 2, top + kBar / 2 + 12, time, font, "normal", "middle");
    }
    const double below = y + kBar + (beside ? 14 : 0);
    if (font == 0 && table_.floor < to)
      box(kLeft + table_.floor * scale, y - 3, 2, kBar + 6, "#000000", "floor: " + micros(table_.floor));
    return axis(below, from, to) + 4;
  }

  double axis(double y, double from, double to) {
    const double raw = (to - from) / 8, power = std::pow(10, std::floor(std::log10(raw)));
    const double tick = power * (raw / power < 2 ? 2 : raw / power < 5 ? 5 : 10);
    for (double t = std::ceil(from / tick) * tick; t <= to; t += tick) {
      const double x = kLeft + (t - from) * kWidth / (to - from);
      box(x, y, 1, 5, "#888888", "");
      line(x, y + 16, text_of(tick < 1e-6 ? "%.1f" : "%.0f", t * 1e6), 10, "normal", "middle");
    }
    return y + 20;
  }

  /// Begin and end of the layer in the middle of the step; equal = none.
  std::pair<double, double> middle_layer() {
    int most = -1;
    for (const StepEvent& e : table_.events)
      if (!e.beside) most = std::max(most, e.layer);
    layer_ = most / 2;
    double begin = table_.seconds, end = 0;
    for (const StepEvent& e : table_.events) {
      if (e.beside || e.layer != layer_ || most < 0) continue;
      begin = std::min(begin, e.end - e.own);
      end = std::max(end, e.end);
    }
    return {begin, std::max(begin, end)};
  }

  double legend(double y) {
    static constexpr double kColumns[] = {560, 640, 720, 800, 880};
    line(kLeft + 20, y, "operation", 12, "bold");
    const char* heads[] = {"count", "us", "floor us", "of floor", "of step"};
    for (size_t i = 0; i < std::size(heads); ++i)
      line(kLeft + kColumns[i], y, heads[i], 12, "bold", "end");
    for (size_t i = 0; i < table_.rows.size(); ++i) {
      const StepRow& row = table_.rows[i];
      if (row.seconds == 0) continue;
      y += kRowHeight;
      box(kLeft, y - 11, 13, 13, colour_of(i), "");
      std::string name = name_of(i);
      if (!row.op.empty() && !row.kernels.empty()) name += "   " + row.kernels.front();
      if (name.size() > 76) name = name.substr(0, 73) + "...";
      line(kLeft + 20, y, name, 12);
      const std::string cells[] = {std::to_string(row.count), text_of("%.1f", row.seconds * 1e6),
                                   row.floor > 0 ? text_of("%.1f", row.floor * 1e6) : "",
                                   row.floor > 0 ? text_of("%.0f %%", 100 * row.floor / row.seconds) : "",
                                   text_of("%.1f %%", 100 * row.seconds / table_.seconds)};
      for (size_t c = 0; c < std::size(cells); ++c)
        line(kLeft + kColumns[c], y, cells[c], 12, "normal", "end");
    }
    const double idle = table_.before + table_.between;
    y += kRowHeight;
    box(kLeft, y - 11, 13, 13, "#eeeeee", "");
    line(kLeft + 20, y, "nothing runs", 12);
    line(kLeft + kColumns[1], y, text_of("%.1f", idle * 1e6), 12, "normal", "end");
    line(kLeft + kColumns[4], y, text_of("%.1f %%", 100 * idle / table_.seconds), 12, "normal", "end");
    return y;
  }

  const StepTable& table_;
  std::string out_;
  int layer_ = 0;
};

}  // namespace

std::string timeline_svg(const StepTable& table, const std::string& title) {
  return Picture(table).draw(title);
}

}  // namespace fovea::profile
