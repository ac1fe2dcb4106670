// Hypotheses on attention and the rows that ops read.
#include <algorithm>
#include <cmath>
#include <set>

#include "doctor/hypothesis.h"

namespace lockstep::doctor {

namespace {

// The cache after the first step: later steps do not write it, or all of them to one place.
void later_step_hypotheses(const Findings& findings, std::vector<Hypothesis>& out) {
  const auto& steps = findings.trace.manifest().steps;
  if (steps.size() < 2) return;
  const int64_t begin = steps[1].first_position;
  const std::string fix = "Look at the place in the cache that a step after the first writes to.";
  const auto add = [&](const char* cause, const std::string& text, Alteration alter) {
    out.push_back(
        {cause, text, fix, {{"positions", fmt::format("from {} on", begin)}}, std::move(alter)});
    out.back().rank = 1;
  };
  add("cache.position",
      fmt::format("a position sees the first step and itself, and nothing between: later steps "
                  "write one row over and over"),
      sees([begin](const op::Attention&, int64_t position, int64_t key) {
        return key <= position && (key < begin || key == position);
      }));
  for (const CacheRows which : {kKeysAndValues, kKeys, kValues})
    for (const int64_t other : {op::Deviation::kZeros, begin}) {
      const bool zeros = other == op::Deviation::kZeros;
      const char* rows = which == kKeys ? "keys" : which == kValues ? "values" : "keys and values";
      add(zeros ? "cache.missing" : "cache.stale",
          zeros
              ? fmt::format("{} of later steps are zeros in the cache", rows)
              : fmt::format("the cache has the {} of position {} for all later ones", rows, begin),
          [=](Altered& altered, size_t at) {
            altered.deviation(at).reads = [=](size_t input, int64_t position) {
              const bool concerned =
                  (input == 1 && (which & kKeys) != 0) || (input == 2 && (which & kValues) != 0);
              return concerned && position >= begin ? other : position;
            };
            return true;
          });
    }
}

// Of attention that has sinks.
void sink_hypotheses(const op::Attention& own, std::vector<Hypothesis>& out) {
  const auto sinks = [&](const char* what, const char* value, Alteration alter) {
    out.push_back(
        {"attention.sinks",
         what,
         fmt::format("Look at where {} joins the softmax of its head's scores.", own.sinks->name),
         {{"value", std::string(value)}},
         std::move(alter)});
  };
  sinks("sinks are left out of the softmax", "left out", without_sinks());
  sinks("sinks are multiplied by the scale of q · k", "scaled",
        other_sinks([scale = own.scale](size_t head, const std::vector<float>& all) {
          return scale * static_cast<double>(all[head]);
        }));
  sinks("sinks are zero", "zero", other_sinks([](size_t, const std::vector<float>&) { return 0; }));
  sinks("all heads have the sink of head 0", "head 0",
        other_sinks([](size_t, const std::vector<float>& all) { return all[0]; }));
  sinks("a head has the sink of the next one", "next head",
        other_sinks([](size_t head, const std::vector<float>& all) {
          return all[(head + 1) % all.size()];
        }));
}

}  // namespace

void attention_hypotheses(const Findings& findings, size_t index, std::vector<Hypothesis>& out) {
  const op::Op& op = findings.program().ops[index];
  const auto& own = std::get<op::Attention>(op.what);
  const std::string mask_fix = "Look at the mask, and at how it moves with the position.";
  const auto mask = [&](const char* what, const char* value, Alteration alter) {
    out.push_back(
        {"attention.mask", what, mask_fix, {{"sees", std::string(value)}}, std::move(alter)});
  };
  mask("a position sees all of its step, later tokens too", "future", no_mask());
  mask("a position sees the next one too", "future", sees_next());
  mask("a position does not see itself", "not itself", not_itself());
  mask("a position does not see itself, and the first sees nothing", "not itself",
       sees([](const op::Attention&, int64_t position, int64_t key) { return key < position; }));
  mask("the scores of keys out of sight are 0, not minus infinity", "hidden scores are 0",
       hidden_as(0));
  mask("a position sees only its own step, not what came before", "step",
       sees([&trace = findings.trace](const op::Attention&, int64_t position, int64_t key) {
         return key <= position && key >= step_begin(trace, position);
       }));
  mask("a position does not see position 0", "not the first",
       sees([](const op::Attention&, int64_t position, int64_t key) {
         return key <= position && (key > 0 || position == 0);
       }));
  const std::string scale_fix = "Look at the factor of q · k.";
  const auto head = static_cast<double>(own.head_size);
  std::set<double> scales = {own.scale};
  for (const double scale :
       {1.0, 1 / std::sqrt(head), 1 / head, own.scale * own.scale, std::sqrt(own.scale),
        1 / std::sqrt(head * static_cast<double>(own.heads)),
        1 / std::sqrt(static_cast<double>(own.value_size))})
    if (scales.insert(scale).second)
      out.push_back({"attention.scale",
                     fmt::format("q · k is multiplied by {:.6g}, not {:.6g}", scale, own.scale),
                     scale_fix,
                     {{"value", scale}},
                     attention_scale(scale)});
  const std::string map_fix = "Look at which head of k and v a head of q reads.";
  const auto heads = [&](const char* what,
                         std::function<int64_t(const op::Attention&, int64_t)> map) {
    out.push_back({"attention.head_map",
                   what,
                   map_fix,
                   {{"value", std::string(what)}},
                   kv_head(std::move(map))});
  };
  heads("query head h reads key head h mod the number of key heads",
        [](const op::Attention& a, int64_t h) { return h % a.kv_heads; });
  heads("all query heads read key head 0", [](const op::Attention&, int64_t) { return 0; });
  heads("key heads are in reverse order", [](const op::Attention& a, int64_t h) {
    return a.kv_heads - 1 - h / (a.heads / a.kv_heads);
  });
  heads("query head h reads the key head after its own", [](const op::Attention& a, int64_t h) {
    return (h / (a.heads / a.kv_heads) + 1) % a.kv_heads;
  });
  // A window of w shows first at position w, the one of w + 1 at the position after.
  const std::string window_fix =
      "Look at the window of attention, and whether it counts the "
      "position itself.";
  std::set<int64_t> windows = {own.window};
  const auto add_window = [&](int64_t size) {
    if (size < 0 || !windows.insert(size).second) return;
    out.push_back(
        {"attention.window",
         size == 0 ? fmt::format("it has no window, where the model has one of {}", own.window)
         : own.window == 0 ? fmt::format("it has a window of {}, where the model has none", size)
                           : fmt::format("the window is {}, not {}", size, own.window),
         window_fix,
         {{"value", size}},
         window(size)});
  };
  add_window(0);
  for (const int64_t offset : {1, -1}) add_window(own.window > 0 ? own.window + offset : -1);
  if (!findings.wrong.empty()) add_window(findings.wrong.front());
  for (const double cap : {50.0, 30.0, 20.0, 10.0, 100.0})
    out.push_back({"attention.soft_cap",
                   fmt::format("scores are capped at {:g}", cap),
                   "Look for a soft cap that this model has not.",
                   {{"value", cap}},
                   soft_cap(cap)});
  if (own.soft_cap > 0)
    out.push_back({"attention.soft_cap",
                   "scores are not capped",
                   "Look for the soft cap of the model.",
                   {{"value", 0.0}},
                   soft_cap(0)});
  if (own.sinks) sink_hypotheses(own, out);
  later_step_hypotheses(findings, out);
  // A row of the cache that is not its position's shows from that position on, or later.
  if (findings.wrong.empty()) return;
  const int64_t first = findings.wrong.front();
  constexpr int64_t kMost = 48;
  for (int64_t position = first; position >= std::max<int64_t>(0, first - kMost); --position)
    for (const CacheRows which : {kKeys, kValues, kKeysAndValues}) {
      const char* rows = which == kKeys ? "key" : which == kValues ? "value" : "key and value";
      std::vector<int64_t> others = {position - 1, op::Deviation::kZeros, 0, position + 1};
      std::set<int64_t> tried;
      for (const int64_t other : others) {
        const bool zeros = other == op::Deviation::kZeros;
        if (other == position || other >= findings.trace.positions() || (!zeros && other < 0) ||
            !tried.insert(other).second)
          continue;
        out.push_back(
            {zeros ? "cache.missing" : "cache.stale",
             zeros ? fmt::format("the {} of position {} are zeros in the cache", rows, position)
                   : fmt::format("the cache has the {} of position {} in place of "
                                 "position {}'s",
                                 rows, other, position),
             "Look at where the cache is written, and whether the write comes before "
             "the read.",
             {{"positions", fmt::format("{}", position)}},
             cache_row(which, position, other)});
        out.back().rank = 1;
      }
    }
  for (const int64_t offset : {-1, 1})
    for (const CacheRows which : {kKeys, kValues, kKeysAndValues})
      out.push_back({"cache.position",
                     fmt::format("the cache holds {} one place too {}",
                                 which == kKeys     ? "keys"
                                 : which == kValues ? "values"
                                                    : "keys and values",
                                 offset < 0 ? "far" : "early"),
                     "Look at the place in the cache that a step writes to.",
                     {{"positions", std::string("all")}},
                     [=](Altered& altered, size_t at) {
                       altered.deviation(at).reads = [=](size_t input, int64_t position) {
                         const bool concerned = (input == 1 && (which & kKeys) != 0) ||
                                                (input == 2 && (which & kValues) != 0);
                         return concerned ? std::max<int64_t>(0, position + offset) : position;
                       };
                       return true;
                     }});
}

void row_hypotheses(const Findings& findings, size_t index, std::vector<Hypothesis>& out) {
  const op::Op& op = findings.program().ops[index];
  const std::string fix =
      "Look at the buffer of this result: what wrote it last, and which row a token has in it.";
  const std::set<int64_t> all(findings.wrong.begin(), findings.wrong.end());
  const int64_t end = findings.trace.positions();
  // Rows of the input, where that is not the same as rows of the result.
  const bool attends = std::holds_alternative<op::Attention>(op.what);
  const bool placed = attends || std::holds_alternative<op::Rope>(op.what);
  const auto add = [&](const std::set<int64_t>& wrong, int64_t offset) {
    const auto other = [wrong, offset, end](int64_t position) {
      const int64_t at = position + offset;
      return !wrong.contains(position) || at < 0 || at >= end ? position : at;
    };
    const std::string which =
        wrong.size() == all.size() ? "a wrong row" : fmt::format("row {}", *wrong.begin());
    const std::string where =
        fmt::format("{} {} it", std::abs(offset) == 1 ? "the position" : "two positions",
                    offset < 0 ? "before" : "after");
    Hypothesis made{"row.stale",
                    fmt::format("{} is the row of {}", which, where),
                    fix,
                    {{"position", fmt::format("{:+d}", offset)}},
                    result_of(other)};
    made.rank = 1;
    out.push_back(made);
    if (!placed) return;
    made.text = fmt::format("for {} it reads the row of {}", which, where);
    made.alter = [other, attends](Altered& altered, size_t at) {
      altered.deviation(at).reads = [=](size_t input, int64_t position) {
        return attends && input > 0 ? position : other(position);
      };
      return true;
    };
    out.push_back(std::move(made));
  };
  for (const int64_t offset : {-1, 1, -2, 2}) {
    add(all, offset);
    // Later rows may have inherited it through attention.
    if (all.size() > 1) add({*all.begin()}, offset);
  }
}

}  // namespace lockstep::doctor
