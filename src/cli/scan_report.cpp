#include "cli/scan_report.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <set>

#include "base/table.h"
#include "base/text.h"
#include "cli/log_problems.h"
#include "trace/npz.h"

namespace lockstep::cli {
namespace {

using forensics::CheckpointStats;
using forensics::Cluster;
using forensics::range_text;
using forensics::Report;
using forensics::RowStats;
using nlohmann::ordered_json;

constexpr size_t kShownClusters = 20;

std::string share(int64_t part, int64_t whole) {
  if (part == 0) return "0";
  const double percent = 100 * static_cast<double>(part) / static_cast<double>(whole);
  return percent < 0.01 ? "<0.01%" : fmt::format("{:.2f}%", percent);
}

std::string short_number(double value) {
  return fmt::format("{:.4g}", value);
}

bool is_garbage(const Cluster& cluster) {
  return forensics::info(cluster.kind).garbage;
}

// Text in lines of at most `width`, each after `indent`.
void print_wrapped(std::string_view text, size_t indent, int64_t width) {
  const size_t room = static_cast<size_t>(std::clamp<int64_t>(width, 40, 100)) - indent;
  while (!text.empty()) {
    size_t cut = text.size();
    if (cut > room) {
      cut = text.rfind(' ', room);
      if (cut == std::string_view::npos || cut == 0) cut = std::min(text.find(' '), text.size());
    }
    fmt::print("{}{}\n", std::string(indent, ' '), text.substr(0, cut));
    text.remove_prefix(std::min(cut + 1, text.size()));
  }
}

// "blk.0.q, blk.1.q, 3 more".
std::string names_text(std::span<const std::string> names) {
  constexpr size_t kShownNames = 4;
  std::string text;
  for (size_t i = 0; i < std::min(names.size(), kShownNames); ++i)
    text += (i > 0 ? ", " : "") + printable(names[i]);
  if (names.size() > kShownNames) text += fmt::format(", {} more", names.size() - kShownNames);
  return text;
}

void print_cluster(const Cluster& cluster, const Screen& screen) {
  const auto& kind = forensics::info(cluster.kind);
  const std::string title = fmt::format("{}: {}", printable(cluster.checkpoints[0]), kind.title);
  fmt::print("  {}\n", kind.garbage ? screen.paint.red(title) : screen.paint.bold(title));
  std::string places = fmt::format("position{} {}", cluster.positions.size() == 1 ? "" : "s",
                                   range_text(cluster.positions));
  if (cluster.whole_rows)
    places += fmt::format("; whole rows, {} numbers", cluster.numbers);
  else if (cluster.kind == forensics::Kind::kMasked)
    places += fmt::format("; {} numbers", cluster.numbers);
  else
    places += fmt::format("; columns {}; {} numbers", range_text(cluster.values), cluster.numbers);
  if (cluster.largest > 0 && cluster.kind != forensics::Kind::kMasked)
    places += cluster.smallest == cluster.largest
                  ? fmt::format(", magnitude {:.2g}", cluster.largest)
                  : fmt::format(", magnitudes {:.2g} to {:.2g}", cluster.smallest, cluster.largest);
  if (kind.garbage) places += fmt::format("; {:.0f}% sure", 100 * cluster.score);
  print_wrapped(places, 4, screen.width);
  print_wrapped(printable(cluster.evidence), 4, screen.width);
  if (cluster.checkpoints.size() > 1)
    print_wrapped(
        fmt::format("the same at {}", names_text(std::span(cluster.checkpoints).subspan(1))), 4,
        screen.width);
}

Table stats_table(bool positions) {
  std::vector<Column> columns = {{"checkpoint", false, 0, true}};
  columns.push_back({positions ? "position" : "rows", true});
  for (const char* title : {"min", "max"}) columns.push_back({title, true});
  columns.push_back({"mean", true, 3});
  columns.push_back({"std", true, 2});
  columns.push_back({"zeros", true, 4});
  columns.push_back({"denormals", true, 6});
  columns.push_back({"NaN", true, 1});
  columns.push_back({"inf", true, 1});
  columns.push_back({"garbage", true});
  return Table(std::move(columns));
}

void add_stats(Table& table, const std::string& name, const std::string& second,
               const RowStats& stats, int64_t garbage) {
  const bool any = stats.finite > 0;
  table.add({printable(name), second, any ? short_number(stats.min) : "-",
             any ? short_number(stats.max) : "-", any ? short_number(stats.mean) : "-",
             any ? short_number(stats.deviation) : "-", share(stats.zeros, stats.count),
             share(stats.denormals, stats.count), share(stats.nans, stats.count),
             share(stats.plus_infinities + stats.minus_infinities, stats.count),
             share(garbage, stats.count)});
}

ordered_json json_number(double value) {
  return std::isfinite(value) ? ordered_json(value) : ordered_json(fmt::format("{}", value));
}

ordered_json stats_json(const RowStats& stats) {
  ordered_json json = {{"count", stats.count}};
  if (stats.finite > 0) {
    json["min"] = stats.min;
    json["max"] = stats.max;
    json["mean"] = json_number(stats.mean);
    json["std"] = json_number(stats.deviation);
  }
  json["zeros"] = stats.zeros;
  json["denormals"] = stats.denormals;
  json["nan"] = stats.nans;
  json["plus_inf"] = stats.plus_infinities;
  json["minus_inf"] = stats.minus_infinities;
  return json;
}

// Garbage first. What is no garbage stands apart: nobody should fear it.
void print_clusters(const Report& report, const Screen& screen) {
  for (const bool garbage : {true, false}) {
    std::vector<const Cluster*> clusters;
    for (const Cluster& cluster : report.clusters)
      if (is_garbage(cluster) == garbage) clusters.push_back(&cluster);
    if (!garbage && !clusters.empty()) fmt::print("\n  Not garbage, but easily taken for it\n");
    for (size_t i = 0; i < std::min(clusters.size(), kShownClusters); ++i)
      print_cluster(*clusters[i], screen);
    if (clusters.size() > kShownClusters)
      fmt::print("  ... and {} more findings (--json has all)\n", clusters.size() - kShownClusters);
  }
}

}  // namespace

void print_report(const Report& report, const Screen& screen) {
  fmt::print("{}", screen.paint.bold(printable(report.path)));
  if (!report.engine.empty()) fmt::print(" ({})", printable(report.engine));
  fmt::print("\n");
  print_problems(report.problems, report.path, "--json");
  const std::string verdict =
      report.numbers == 0 ? "nothing to scan: no numbers"
      : report.garbage_numbers == 0
          ? "no garbage"
          : fmt::format("garbage: {} of {} numbers ({})", report.garbage_numbers, report.numbers,
                        share(report.garbage_numbers, report.numbers));
  fmt::print("  {} in {} rows of {} checkpoints{}\n",
             report.clean() ? screen.paint.green(verdict) : screen.paint.red(verdict),
             report.rows.size(), report.checkpoints.size(),
             report.broken_off ? "; the recording broke off" : "");
  print_clusters(report, screen);
  for (const std::string& note : report.notes)
    print_wrapped("note: " + printable(note), 2, screen.width);
  fmt::print("\n");
  Table table = stats_table(false);
  for (const CheckpointStats& item : report.checkpoints)
    add_stats(table, item.checkpoint, fmt::format("{}", item.rows), item.total, item.garbage);
  fmt::print("{}", table.render(screen.width, screen.paint));
  fmt::print(
      "rows: positions; std: standard deviation; denormals: too small for full precision; inf: "
      "plus "
      "and minus\n\n");
}

void print_summary(const std::vector<const Report*>& reports, const Screen& screen) {
  Table table({{"model", false, 0, true},
               {"garbage", true},
               {"positions"},
               {"columns"},
               {"magnitude"},
               {"what", false, 1, true}});
  for (const Report* report : reports) {
    std::set<int64_t> positions;
    std::set<std::string> kinds;
    std::vector<forensics::Range> values;
    double smallest = 0, largest = 0;
    for (const Cluster& cluster : report->clusters) {
      if (!is_garbage(cluster)) continue;
      positions.insert(cluster.positions.begin(), cluster.positions.end());
      kinds.insert(std::string(forensics::info(cluster.kind).name));
      values.insert(values.end(), cluster.values.begin(), cluster.values.end());
      largest = std::max(largest, cluster.largest);
      if (cluster.smallest > 0)
        smallest = smallest == 0 ? cluster.smallest : std::min(smallest, cluster.smallest);
    }
    std::string what;
    for (const std::string& kind : kinds) what += (what.empty() ? "" : ", ") + kind;
    table.add({printable(report->model.empty() ? report->path : report->model),
               share(report->garbage_numbers, report->numbers),
               positions.empty()
                   ? "-"
                   : range_text(std::vector<int64_t>(positions.begin(), positions.end()), 3),
               values.empty() ? "-" : range_text(forensics::joined(values), 3),
               largest == 0 ? "-" : fmt::format("{:.1e} to {:.1e}", smallest, largest),
               what.empty() ? "-" : what});
  }
  fmt::print("{}\n", table.render(screen.width, screen.paint));
}

void print_side_by_side(const Report& a, const Report& b, const Screen& screen) {
  fmt::print("{} | {}\n", printable(a.path), printable(b.path));
  Table table({{"checkpoint", false, 0, true},
               {"min", true},
               {"min'", true},
               {"max", true},
               {"max'", true},
               {"mean", true, 2},
               {"mean'", true, 2},
               {"std", true, 1},
               {"std'", true, 1},
               {"garbage", true},
               {"garbage'", true}});
  const auto find = [](const Report& report, const std::string& name) -> const CheckpointStats* {
    const auto found = std::ranges::find(report.checkpoints, name, &CheckpointStats::checkpoint);
    return found != report.checkpoints.end() ? &*found : nullptr;
  };
  const auto row = [&](const std::string& name) {
    const CheckpointStats* sides[] = {find(a, name), find(b, name)};
    std::vector<std::string> cells = {printable(name)};
    const auto both = [&](const auto& text) {
      for (const CheckpointStats* side : sides)
        cells.push_back(side != nullptr ? text(*side) : "missing");
    };
    both([](const CheckpointStats& s) { return short_number(s.total.min); });
    both([](const CheckpointStats& s) { return short_number(s.total.max); });
    both([](const CheckpointStats& s) { return short_number(s.total.mean); });
    both([](const CheckpointStats& s) { return short_number(s.total.deviation); });
    both([](const CheckpointStats& s) { return share(s.garbage, s.total.count); });
    table.add(std::move(cells));
  };
  for (const CheckpointStats& item : a.checkpoints) row(item.checkpoint);
  for (const CheckpointStats& item : b.checkpoints)
    if (find(a, item.checkpoint) == nullptr) row(item.checkpoint);
  fmt::print("{}\n", table.render(screen.width, screen.paint));
}

void print_rows(const forensics::Source& source, const Report& report, const Screen& screen) {
  Table table = stats_table(true);
  for (size_t i = 0; i < report.rows.size(); ++i)
    add_stats(table, source.checkpoints[source.rows[i].checkpoint],
              fmt::format("{}", source.rows[i].position), report.rows[i], report.garbage[i]);
  fmt::print("{}\n", table.render(screen.width, screen.paint));
}

ordered_json to_json(const forensics::Source& source, const Report& report, bool rows) {
  ordered_json out = {{"path", report.path},
                      {"engine", report.engine},
                      {"model", report.model},
                      {"clean", report.clean()},
                      {"complete", !report.broken_off},
                      {"numbers", report.numbers},
                      {"garbage_numbers", report.garbage_numbers},
                      {"garbage_rate", report.garbage_rate()},
                      {"clusters", ordered_json::array()},
                      {"checkpoints", ordered_json::array()}};
  for (const Cluster& cluster : report.clusters) {
    ordered_json values = ordered_json::array();
    for (const forensics::Range& range : cluster.values)
      values.push_back({range.begin, range.end - 1});
    out["clusters"].push_back({{"kind", forensics::info(cluster.kind).name},
                               {"title", forensics::info(cluster.kind).title},
                               {"garbage", is_garbage(cluster)},
                               {"checkpoint", cluster.checkpoints[0]},
                               {"checkpoints", cluster.checkpoints},
                               {"inherited", cluster.inherited},
                               {"positions", cluster.positions},
                               {"values", std::move(values)},
                               {"whole_rows", cluster.whole_rows},
                               {"numbers", cluster.numbers},
                               {"smallest", cluster.smallest},
                               {"largest", cluster.largest},
                               {"score", cluster.score},
                               {"evidence", cluster.evidence}});
  }
  for (const CheckpointStats& item : report.checkpoints) {
    ordered_json json = {{"checkpoint", item.checkpoint}, {"rows", item.rows}};
    json.update(stats_json(item.total));
    json["garbage"] = item.garbage;
    out["checkpoints"].push_back(std::move(json));
  }
  for (size_t i = 0; rows && i < report.rows.size(); ++i) {
    ordered_json json = {{"checkpoint", source.checkpoints[source.rows[i].checkpoint]},
                         {"position", source.rows[i].position}};
    json.update(stats_json(report.rows[i]));
    json["garbage"] = report.garbage[i];
    out["rows"].push_back(std::move(json));
  }
  out["notes"] = report.notes;
  out["problems"] = problems_json(report.problems);
  return out;
}

Result<void> write_numpy(const forensics::Source& source, const Report& report,
                         const std::string& path) {
  LS_TRY(trace::NpzWriter npz, trace::NpzWriter::create(path));
  std::vector<std::string> names;
  std::vector<int64_t> positions;
  for (const forensics::RowRef& ref : source.rows) {
    names.push_back(source.checkpoints[ref.checkpoint]);
    positions.push_back(ref.position);
  }
  LS_TRY_VOID(npz.add("checkpoint", names));
  LS_TRY_VOID(npz.add("position", positions));
  const auto add = [&](const char* name, const auto& field) {
    std::vector<std::decay_t<decltype(field(report.rows[0]))>> values;
    for (const RowStats& row : report.rows) values.push_back(field(row));
    return npz.add(name, std::span<const typename decltype(values)::value_type>(values));
  };
  LS_TRY_VOID(add("count", [](const RowStats& row) { return row.count; }));
  LS_TRY_VOID(add("min", [](const RowStats& row) { return row.min; }));
  LS_TRY_VOID(add("max", [](const RowStats& row) { return row.max; }));
  LS_TRY_VOID(add("mean", [](const RowStats& row) { return row.mean; }));
  LS_TRY_VOID(add("std", [](const RowStats& row) { return row.deviation; }));
  LS_TRY_VOID(add("zeros", [](const RowStats& row) { return row.zeros; }));
  LS_TRY_VOID(add("denormals", [](const RowStats& row) { return row.denormals; }));
  LS_TRY_VOID(add("nan", [](const RowStats& row) { return row.nans; }));
  LS_TRY_VOID(add("plus_inf", [](const RowStats& row) { return row.plus_infinities; }));
  LS_TRY_VOID(add("minus_inf", [](const RowStats& row) { return row.minus_infinities; }));
  LS_TRY_VOID(npz.add("garbage", report.garbage));
  return npz.finish();
}

}  // namespace lockstep::cli
