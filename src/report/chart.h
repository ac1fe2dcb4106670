// A chart of numbers by checkpoint, as inline SVG with a logarithmic scale.
#pragma once

#include <string>
#include <vector>

namespace lockstep::report {

struct ChartPoint {
  std::string label;  // shown when pointed at
  double value = 0;   // 0 and less lies on the ground, infinities on the ceiling
  std::string kind;   // class of the dot: a verdict
  bool joined = false;
};

struct ChartSeries {
  std::string name;  // class of its marks
  std::vector<ChartPoint> points;
};

struct ChartMark {
  size_t at = 0;  // index of a point
  std::string label;
};

struct Chart {
  std::string title;
  int lowest_power = -16;
  int highest_power = 0;
  bool has_limit = false;  // a line at 1
  std::vector<ChartSeries> series;
  std::vector<ChartMark> ticks;    // below: where a layer begins
  std::vector<ChartMark> markers;  // a line through the whole chart
};

// Labels and classes must be markup already (summary.h).
std::string svg(const Chart& chart);

}  // namespace lockstep::report
