#include "hub/config_parts.h"

namespace lockstep::hub {
namespace {

bool by_period(int64_t layer, int64_t period) {
  return period == 0 || layer % period != period - 1;
}

// From the list of layers, or from what says less.
Result<std::vector<bool>> windowed_layers(const Settings& in, int64_t layers) {
  std::vector<bool> windowed;
  if (const JsonReader list = in.at("layer_types"); list.present()) {
    LS_TRY(const std::vector<JsonReader> items, list.items());
    if (static_cast<int64_t>(items.size()) != layers)
      return list.wrong(fmt::format("a type for each of {} layers", layers));
    for (const JsonReader& item : items) {
      LS_TRY(const std::string type, item.text());
      if (type != "sliding_attention" && type != "full_attention")
        return item.wrong("\"sliding_attention\" or \"full_attention\"");
      windowed.push_back(type == "sliding_attention");
    }
    return windowed;
  }
  LS_TRY(const std::optional<int64_t> first, in.count("max_window_layers", 0));
  if (in.family().window_needs_flag && !first)
    return in.at("layer_types").wrong("the type of each layer, since use_sliding_window is true");
  LS_TRY(const std::optional<int64_t> pattern, in.count("sliding_window_pattern"));
  LS_TRY(const std::optional<int64_t> newer, in.count("_sliding_window_pattern"));
  const int64_t usual = in.family().window_period;
  const int64_t period = usual == 0 ? 0 : newer.value_or(pattern.value_or(usual));
  for (int64_t layer = 0; layer < layers; ++layer)
    windowed.push_back(in.family().window_needs_flag ? layer >= *first : by_period(layer, period));
  return windowed;
}

}  // namespace

Result<void> read_window(const Settings& in, Config& out) {
  Keys keys(out);
  LS_TRY(const std::optional<int64_t> found, in.count("sliding_window", 0));
  int64_t window = found.value_or(0);
  if (in.family().window_needs_flag) {
    const JsonReader flag = in.at("use_sliding_window");
    const Result<bool> used = flag.present() ? flag.boolean() : Result<bool>(false);
    if (!used.ok()) return used.error();
    if (!*used) window = 0;
  }
  std::vector<bool> windowed;
  bool any = false, usual = true;
  if (window > 0) {
    LS_TRY(windowed, windowed_layers(in, out.layers));
    for (int64_t layer = 0; layer < out.layers; ++layer) {
      const bool own = windowed[static_cast<size_t>(layer)];
      any |= own;
      usual &= own == by_period(layer, in.family().window_period);
    }
  }
  if (!any) window = 0;
  if (window > 0 || in.family().always_window) keys.count("attention.sliding_window", window);
  if (any && !usual) keys.put("attention.sliding_window_pattern", gguf::Array{std::move(windowed)});
  return {};
}

}  // namespace lockstep::hub
