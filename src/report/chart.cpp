#include "report/chart.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace lockstep::report {
namespace {

constexpr double kWidth = 960;
constexpr double kHeight = 260;
constexpr double kLeft = 52;
constexpr double kRight = 14;
constexpr double kTop = 14;
constexpr double kBottom = 30;

class Plane {
 public:
  explicit Plane(const Chart& chart) : chart_(chart) {
    for (const ChartSeries& series : chart.series) count_ = std::max(count_, series.points.size());
  }

  double x(size_t index) const {
    const double span = kWidth - kLeft - kRight - 2 * kInset;
    const double last = static_cast<double>(std::max<size_t>(count_, 2) - 1);
    return kLeft + kInset + span * static_cast<double>(index) / last;
  }

  double y(double value) const {
    double power = chart_.lowest_power;
    if (std::isnan(value) || std::isinf(value))
      power = chart_.highest_power;
    else if (value > 0)
      power = std::clamp(std::log10(value), static_cast<double>(chart_.lowest_power),
                         static_cast<double>(chart_.highest_power));
    return y_of_power(power);
  }

  double y_of_power(double power) const {
    const double share = (power - chart_.lowest_power) /
                         static_cast<double>(chart_.highest_power - chart_.lowest_power);
    return kHeight - kBottom - share * (kHeight - kTop - kBottom);
  }

 private:
  static constexpr double kInset = 10;
  const Chart& chart_;
  size_t count_ = 1;
};

std::string grid(const Chart& chart, const Plane& plane) {
  std::string out;
  const int span = chart.highest_power - chart.lowest_power;
  const int every = std::max(1, span / 6);
  for (int power = chart.highest_power; power >= chart.lowest_power; power -= every) {
    const double y = plane.y_of_power(power);
    out += fmt::format(
        "<line class=\"grid\" x1=\"{0}\" x2=\"{1}\" y1=\"{2:.1f}\" y2=\"{2:.1f}\"/>"
        "<text class=\"axis\" x=\"{3}\" y=\"{4:.1f}\" text-anchor=\"end\">{5}</text>\n",
        kLeft, kWidth - kRight, y, kLeft - 6, y + 4,
        power == 0 ? std::string("1") : fmt::format("1e{}", power));
  }
  // Names of layers where they do not run into each other.
  double free_from = 0;
  for (const ChartMark& tick : chart.ticks) {
    const double x = plane.x(tick.at);
    out +=
        fmt::format("<line class=\"tick\" x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1}\" y2=\"{2}\"/>\n",
                    x, kHeight - kBottom, kHeight - kBottom + 4);
    if (x < free_from) continue;
    out += fmt::format("<text class=\"axis\" x=\"{:.1f}\" y=\"{}\">{}</text>\n", x,
                       kHeight - kBottom + 17, tick.label);
    free_from = x + 9 + 7 * static_cast<double>(tick.label.size());
  }
  return out;
}

std::string marks(const ChartSeries& series, const Plane& plane) {
  std::string path;
  std::string dots;
  for (size_t i = 0; i < series.points.size(); ++i) {
    const ChartPoint& point = series.points[i];
    if (point.kind.empty()) continue;  // nothing to show at this place
    const double x = plane.x(i);
    const double y = plane.y(point.value);
    if (point.joined) path += fmt::format("{}{:.1f},{:.1f}", path.empty() ? "M" : " L", x, y);
    dots += fmt::format(
        "<circle class=\"{} {}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{}\"><title>{}</title></circle>\n",
        series.name, point.kind, x, y, point.joined ? "4" : "2.6", point.label);
  }
  if (!path.empty()) path = fmt::format("<path class=\"{}\" d=\"{}\"/>\n", series.name, path);
  return path + dots;
}

}  // namespace

std::string svg(const Chart& chart) {
  const Plane plane(chart);
  std::string out = fmt::format(
      "<div class=\"chart\"><svg viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\">\n", kWidth,
      kHeight, chart.title);
  out += grid(chart, plane);
  if (chart.has_limit)
    out +=
        fmt::format("<line class=\"limit\" x1=\"{0}\" x2=\"{1}\" y1=\"{2:.1f}\" y2=\"{2:.1f}\"/>\n",
                    kLeft, kWidth - kRight, plane.y(1));
  for (const ChartMark& mark : chart.markers)
    out += fmt::format(
        "<line class=\"marker\" x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1}\" y2=\"{2}\">"
        "<title>{3}</title></line>\n",
        plane.x(mark.at), kTop, kHeight - kBottom, mark.label);
  for (const ChartSeries& series : chart.series) out += marks(series, plane);
  return out + "</svg></div>\n";
}

}  // namespace lockstep::report
