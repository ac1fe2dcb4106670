#include <algorithm>
#include <cmath>
#include <set>

#include "report/chart.h"
#include "report/page.h"
#include "report/summary.h"

namespace lockstep::report {
namespace {

using parity::CheckpointResult;
using parity::Comparison;

bool is_station(const Comparison& c, const CheckpointResult& result) {
  const auto all = stations(c);
  return std::ranges::find(all, &result) != all.end();
}

// What both charts share: a place a checkpoint, names of layers, the first defect.
Chart frame(const Comparison& c, const std::string& title) {
  Chart chart;
  chart.title = title;
  int64_t layer = -1;
  for (size_t i = 0; i < c.checkpoints.size(); ++i) {
    const CheckpointResult& result = c.checkpoints[i];
    if (result.layer >= 0 && result.layer != layer)
      chart.ticks.push_back({i, fmt::format("layer {}", result.layer)});
    layer = result.layer;
    if (c.first_defect && c.first_defect->checkpoint == result.name)
      chart.markers.push_back({i, fmt::format("first defect: {}", markup(result.name))});
  }
  return chart;
}

std::string drift_chart(const Comparison& c) {
  Chart chart = frame(c, "Relative difference by checkpoint");
  ChartSeries series{"difference", {}};
  for (const CheckpointResult& result : c.checkpoints) {
    ChartPoint point;
    if (result.positions > 0) {
      point.value = result.metrics.non_finite_differs > 0 ? INFINITY : result.metrics.relative_l2();
      point.kind = std::string(parity::name(result.verdict));
      point.joined = is_station(c, result);
      point.label = fmt::format("{}: relative L2 {}, {}", markup(result.name),
                                short_number(point.value), point.kind);
    }
    series.points.push_back(std::move(point));
  }
  chart.series.push_back(std::move(series));
  return fmt::format(
      "<h2>Drift</h2>\n<p class=\"hint\">Relative L2 difference of every checkpoint in order of "
      "execution; the line joins the outputs of the layers.</p>\n{}",
      svg(chart));
}

std::string own_error_chart(const Comparison& c) {
  Chart chart = frame(c, "Own error over bound by checkpoint");
  chart.lowest_power = -4;
  chart.highest_power = 4;
  chart.has_limit = true;
  const auto add = [&](const char* name, auto side_of) {
    ChartSeries series{name, {}};
    for (const CheckpointResult& result : c.checkpoints) {
      ChartPoint point;
      const parity::SideJudgement& side = side_of(result);
      if (side.worst) {
        point.value = side.worst->non_finite ? INFINITY : side.worst->ratio();
        point.kind = side.first_defect ? "defect" : "rounding";
        point.label = fmt::format("{}, {}: {} times the bound at position {}", markup(result.name),
                                  name, short_number(point.value), side.worst->position);
      }
      series.points.push_back(std::move(point));
    }
    chart.series.push_back(std::move(series));
  };
  add(
      "reference", [](const CheckpointResult& r) -> auto& { return r.reference; });
  add(
      "suspect", [](const CheckpointResult& r) -> auto& { return r.suspect; });
  return fmt::format(
      "<h2>Own errors</h2>\n<p class=\"hint\">Each op replayed in double precision from its own "
      "recorded inputs: its error over what rounding explains. Above the dashed line is a "
      "defect. Rings: the reference; dots: the suspect.</p>\n{}",
      svg(chart));
}

// Sorts by a number that text would hide.
std::string number_cell(double value) {
  const double key = std::isnan(value) || value > 1e300 ? 1e300 : value;
  return fmt::format("<td data-key=\"{:g}\">{}</td>", key, short_number(value));
}

std::string own_cell(const parity::SideJudgement& side) {
  if (!side.worst) return "<td data-key=\"-1\">–</td>";
  return number_cell(side.worst->non_finite ? INFINITY : side.worst->ratio());
}

std::string checkpoint_table(const Comparison& c) {
  std::set<std::string_view> verdicts;
  for (const CheckpointResult& result : c.checkpoints)
    verdicts.insert(parity::name(result.verdict));
  std::string out =
      "<h2>Checkpoints</h2>\n<div class=\"tools\"><input type=\"search\" placeholder=\"Name "
      "contains…\" aria-label=\"Name contains\"><select aria-label=\"Verdict\"><option "
      "value=\"\">every verdict</option>";
  for (const std::string_view verdict : verdicts)
    out += fmt::format("<option>{}</option>", verdict);
  out += "</select></div>\n<div class=\"scroll\"><table class=\"all\"><thead><tr>";
  for (const char* title : {"checkpoint", "verdict", "reference*", "suspect*", "relative L2",
                            "NMSE", "max diff", "cosine", "worst at", "positions"})
    out += fmt::format("<th>{}</th>", title);
  out += "</tr></thead><tbody>\n";
  for (const CheckpointResult& result : c.checkpoints) {
    const parity::Metrics& m = result.metrics;
    const bool first = c.first_defect && c.first_defect->checkpoint == result.name;
    out += fmt::format("<tr{}><td>{}</td><td><span class=\"tag {}\">{}</span></td>",
                       first ? " class=\"first\"" : "", markup(result.name),
                       parity::name(result.verdict), parity::name(result.verdict));
    out += own_cell(result.reference) + own_cell(result.suspect);
    out += number_cell(m.relative_l2()) + number_cell(m.nmse()) + number_cell(m.max_difference);
    out += fmt::format("<td data-key=\"{0:.17g}\">{0:.9g}</td>", m.cosine());
    out += fmt::format("<td data-key=\"{0}\">{0}</td><td data-key=\"{1}\">{1}</td></tr>\n",
                       result.worst_position, result.positions);
  }
  return out + "</tbody></table></div>\n<p class=\"hint\">* worst own error over its bound</p>\n";
}

}  // namespace

std::string html_report(const Comparison& c, const Subject& subject) {
  const std::string title = markup(headline(c));
  std::string out = fmt::format(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<title>{}</title>\n<style>{}</style></head>\n<body>\n<header{}><h1>{}</h1>",
      title, kPageStyle, c.parity ? " class=\"parity\"" : "", title);
  for (const std::string& cause : causes(subject)) out += fmt::format("<p>{}</p>", markup(cause));
  if (const std::string why = evidence(c, subject); !why.empty())
    out += fmt::format("<p>{}</p>", markup(why));
  out += "</header>\n<dl>\n";
  for (const Fact& fact : facts(c, subject))
    out += fmt::format("<dt>{}</dt><dd>{}</dd>\n", fact.label, markup(fact.text));
  out += "</dl>\n";
  if (!c.checkpoints.empty()) {
    out += drift_chart(c);
    if (c.judged > 0) out += own_error_chart(c);
    out += checkpoint_table(c);
  }
  if (!c.notes.empty()) {
    out += "<h2>Notes</h2>\n<ul>\n";
    for (const std::string& note : c.notes) out += fmt::format("<li>{}</li>\n", markup(note));
    out += "</ul>\n";
  }
  return out + fmt::format("<footer>lockstep {}</footer>\n<script>{}</script>\n</body></html>\n",
                           LOCKSTEP_VERSION, kPageScript);
}

}  // namespace lockstep::report
