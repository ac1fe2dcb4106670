// Filters on text and single values; those on sequences are in jinja_sequence_filters.cpp.
#include <algorithm>
#include <charconv>
#include <cmath>

#include "jinja/library.h"
#include "jinja/text.h"

namespace lockstep::jinja {

void check_arguments(const Arguments& arguments, std::string_view what,
                     std::initializer_list<std::string_view> names, size_t required) {
  if (arguments.positional.size() > names.size()) {
    fail("{} takes at most {} argument(s), {} given", what, names.size(),
         arguments.positional.size());
  }
  for (const auto& [key, value] : arguments.named) {
    const auto found = std::find(names.begin(), names.end(), key);
    if (found == names.end()) fail("{} takes no argument '{}'", what, key);
    if (std::cmp_less(found - names.begin(), arguments.positional.size())) {
      fail("{} got its argument '{}' twice", what, key);
    }
  }
  for (size_t i = 0; i < required; ++i) {
    if (!arguments.find(i, names.begin()[i])) {
      fail("{} needs its argument '{}'", what, names.begin()[i]);
    }
  }
}

namespace {

Value text_of(std::string text, Budget& budget) {
  budget.spend(text.size());
  return Value(std::move(text));
}

template <std::string (*change)(std::string_view)>
Value change_text(const Value& subject, const Arguments& arguments, Budget& budget) {
  check_arguments(arguments, "the filter", {}, 0);
  const std::string text = to_text(subject, budget);
  budget.spend(text.size() * Budget::kPointCost);
  return text_of(change(text), budget);
}

Value trim(const Value& subject, const Arguments& arguments, Budget& budget) {
  check_arguments(arguments, "the filter 'trim'", {"chars"}, 0);
  const std::string text = to_text(subject, budget);
  const Value* characters = arguments.find(0, "chars");
  if (!characters || characters->is<None>()) {
    budget.spend(text.size() * 4);
    return Value(std::string(strip(text)));
  }
  const std::string& set = text_argument(*characters, "chars");
  budget.spend(text.size() * (Budget::kPointCost + set.size()));
  return Value(std::string(strip(text, set, Side::kBoth)));
}

Value filter_default(const Value& subject, const Arguments& arguments, Budget&) {
  check_arguments(arguments, "the filter 'default'", {"default_value", "boolean"}, 0);
  const Value* boolean = arguments.find(1, "boolean");
  const bool replaced =
      subject.is<Undefined>() || (boolean && truthy(*boolean) && !truthy(subject));
  if (!replaced) return subject;
  const Value* fallback = arguments.find(0, "default_value");
  return fallback ? *fallback : Value("");
}

Value tojson(const Value& subject, const Arguments& arguments, Budget& budget) {
  check_arguments(arguments, "the filter 'tojson'",
                  {"ensure_ascii", "indent", "separators", "sort_keys"}, 0);
  JsonStyle style;
  const auto flag = [&](size_t index, std::string_view name) {
    const Value* value = arguments.find(index, name);
    return value && truthy(*value);
  };
  style.ensure_ascii = flag(0, "ensure_ascii");
  style.sort_keys = flag(3, "sort_keys");
  const Value* indent = arguments.find(1, "indent");
  if (indent && !indent->is<None>()) {
    style.pretty = true;
    style.item_separator.assign(1, ',');  // g++ 12 warns wrongly about = ","
    if (const std::string* text = indent->text()) {
      style.indent = *text;
    } else {
      const int64_t width = integer_argument(*indent, "indent");
      if (width > 1000) fail("an indent of {} is too wide", width);
      style.indent.assign(static_cast<size_t>(std::max<int64_t>(width, 0)), ' ');
    }
  }
  const Value* separators = arguments.find(2, "separators");
  if (separators && !separators->is<None>()) {
    if (!separators->list() || separators->list()->items.size() != 2) {
      fail("separators must be two strings");
    }
    style.item_separator = text_argument(separators->list()->items[0], "separators");
    style.key_separator = text_argument(separators->list()->items[1], "separators");
  }
  return Value(to_json(subject, style, budget));
}

Value filter_replace(const Value& subject, const Arguments& arguments, Budget& budget) {
  check_arguments(arguments, "the filter 'replace'", {"old", "new", "count"}, 2);
  Arguments call;
  call.positional = {Value(to_text(*arguments.find(0, "old"), budget)),
                     Value(to_text(*arguments.find(1, "new"), budget))};
  const Value* count = arguments.find(2, "count");
  if (count && !count->is<None>()) call.positional.push_back(*count);
  return call_method(Value(to_text(subject, budget)), "replace", call, budget);
}

Value indent(const Value& subject, const Arguments& arguments, Budget& budget) {
  check_arguments(arguments, "the filter 'indent'", {"width", "first", "blank"}, 0);
  const Value* width = arguments.find(0, "width");
  std::string space(4, ' ');
  if (width && width->text()) {
    space = *width->text();
  } else if (width) {
    const int64_t count = integer_argument(*width, "width");
    if (count > 1000) fail("an indent of {} is too wide", count);
    space.assign(static_cast<size_t>(std::max<int64_t>(count, 0)), ' ');
  }
  const Value* first = arguments.find(1, "first");
  const Value* blank = arguments.find(2, "blank");
  const std::string text = text_argument(subject, "what 'indent' gets");
  std::string out = first && truthy(*first) ? space : "";
  budget.spend(static_cast<uint64_t>(std::ranges::count(text, '\n') + 1) * Budget::kPartCost +
               text.size() * 4);
  bool is_first = true;
  for (const std::string& line : split_lines(text + "\n")) {
    budget.spend(line.size() + space.size() + 1);
    if (!std::exchange(is_first, false)) {
      out += '\n';
      if (!line.empty() || (blank && truthy(*blank))) out += space;
    }
    out += line;
  }
  return Value(std::move(out));
}

std::optional<double> parse_real(std::string_view text) {
  text = strip(text);
  if (text.starts_with('+') && !text.starts_with("+-")) text.remove_prefix(1);
  double number = 0;
  const auto outcome = std::from_chars(text.data(), text.data() + text.size(), number);
  if (text.empty() || outcome.ec != std::errc() || outcome.ptr != text.data() + text.size()) {
    return std::nullopt;
  }
  return number;
}

std::optional<int64_t> parse_integer(std::string_view text, int base) {
  text = strip(text);
  if (text.starts_with('+') && !text.starts_with("+-")) text.remove_prefix(1);
  int64_t number = 0;
  const auto outcome = std::from_chars(text.data(), text.data() + text.size(), number, base);
  if (outcome.ec == std::errc::result_out_of_range) {
    fail("integers beyond 64 bits are not supported");
  }
  if (text.empty() || outcome.ec != std::errc() || outcome.ptr != text.data() + text.size()) {
    return std::nullopt;
  }
  return number;
}

Value filter_int(const Value& subject, const Arguments& arguments, Budget& budget) {
  if (const std::string* text = subject.text()) budget.spend(text->size() * 2 * Budget::kPointCost);
  check_arguments(arguments, "the filter 'int'", {"default", "base"}, 0);
  const Value* base_value = arguments.find(1, "base");
  const int64_t base = base_value ? integer_argument(*base_value, "base") : 10;
  if (base < 2 || base > 36) fail("the filter 'int' takes bases from 2 to 36, not {}", base);
  if (subject.is<int64_t>()) return subject;
  if (const bool* flag = subject.as<bool>()) return Value(int64_t{*flag});
  std::optional<double> real;
  if (const double* number = subject.as<double>()) real = *number;
  if (const std::string* text = subject.text()) {
    if (const auto whole = parse_integer(*text, static_cast<int>(base))) return Value(*whole);
    real = parse_real(*text);
  }
  if (subject.is<Undefined>()) fail_undefined(subject);
  if (real && std::abs(*real) < 9.2e18) return Value(static_cast<int64_t>(*real));
  if (real && std::isfinite(*real)) fail("integers beyond 64 bits are not supported");
  const Value* fallback = arguments.find(0, "default");
  return fallback ? *fallback : Value(int64_t{0});
}

Value filter_float(const Value& subject, const Arguments& arguments, Budget& budget) {
  if (const std::string* text = subject.text()) budget.spend(text->size() * 2 * Budget::kPointCost);
  check_arguments(arguments, "the filter 'float'", {"default"}, 0);
  if (subject.is<double>()) return subject;
  if (const int64_t* number = subject.as<int64_t>()) return Value(static_cast<double>(*number));
  if (const bool* flag = subject.as<bool>()) return Value(*flag ? 1.0 : 0.0);
  if (subject.is<Undefined>()) fail_undefined(subject);
  if (const std::string* text = subject.text()) {
    if (const auto real = parse_real(*text)) return Value(*real);
  }
  const Value* fallback = arguments.find(0, "default");
  return fallback ? *fallback : Value(0.0);
}

Value filter_abs(const Value& subject, const Arguments& arguments, Budget& budget) {
  check_arguments(arguments, "the filter 'abs'", {}, 0);
  const bool below = compare("<", subject, Value(int64_t{0}), budget);
  return below ? negative(subject) : positive(subject);
}

Value filter_round(const Value& subject, const Arguments& arguments, Budget&) {
  check_arguments(arguments, "the filter 'round'", {"precision", "method"}, 0);
  const Value* precision = arguments.find(0, "precision");
  const Value* method = arguments.find(1, "method");
  const int64_t digits = precision ? integer_argument(*precision, "precision") : 0;
  const std::string how = method ? text_argument(*method, "method") : "common";
  if (digits < 0 || digits > 15) fail("a precision of {} is not supported", digits);
  if (how == "common" && !subject.is<double>()) return positive(subject);
  const double number = subject.is<double>()
                            ? *subject.as<double>()
                            : static_cast<double>(integer_argument(subject, "what 'round' gets"));
  const double scale = std::pow(10.0, static_cast<double>(digits));
  if (how == "ceil") return Value(std::ceil(number * scale) / scale);
  if (how == "floor") return Value(std::floor(number * scale) / scale);
  if (how != "common") fail("the filter 'round' has no method '{}'", how);
  if (!std::isfinite(number) || std::abs(number) > 1e22) return subject;
  // Correct rounding of the decimal digits, as Python does it.
  const std::string text = fmt::format("{:.{}f}", number, digits);
  return Value(parse_real(text).value_or(number));
}

Value filter_string(const Value& subject, const Arguments& arguments, Budget& budget) {
  check_arguments(arguments, "the filter", {}, 0);
  return subject.text() ? subject : Value(to_text(subject, budget));
}

Value filter_format(const Value& subject, const Arguments& arguments, Budget& budget) {
  if (!arguments.named.empty()) fail("named arguments of the filter 'format' are not supported");
  const Value values = make_list(arguments.positional, ListKind::kTuple);
  return Value(format_percent(to_text(subject, budget), values, budget));
}

Value filter_attr(const Value& subject, const Arguments& arguments, Budget&) {
  check_arguments(arguments, "the filter 'attr'", {"name"}, 1);
  if (subject.dict() && !has_method(subject, text_argument(*arguments.find(0, "name"), "name"))) {
    return undefined("the filter 'attr' does not look at the items of a dict");
  }
  return get_attribute(subject, text_argument(*arguments.find(0, "name"), "name"));
}

Value filter_length(const Value& subject, const Arguments& arguments, Budget& budget) {
  check_arguments(arguments, "the filter 'length'", {}, 0);
  if (const std::string* text = subject.text()) budget.spend(text->size() * 4);
  return Value(length_of(subject));
}

}  // namespace

Filter find_text_filter(std::string_view name) {
  static const std::map<std::string_view, Filter> kFilters = {
      {"trim", trim},
      {"upper", change_text<upper>},
      {"lower", change_text<lower>},
      {"capitalize", change_text<capitalize>},
      {"title", change_text<title_words>},
      {"default", filter_default},
      {"d", filter_default},
      {"tojson", tojson},
      {"replace", filter_replace},
      {"indent", indent},
      {"int", filter_int},
      {"float", filter_float},
      {"abs", filter_abs},
      {"round", filter_round},
      {"string", filter_string},
      {"safe", filter_string},
      {"format", filter_format},
      {"attr", filter_attr},
      {"length", filter_length},
      {"count", filter_length},
  };
  const auto found = kFilters.find(name);
  return found == kFilters.end() ? nullptr : found->second;
}

bool is_filter(std::string_view name) {
  return find_text_filter(name) || find_sequence_filter(name);
}

Value apply_filter(const std::string& name, const Value& subject, const Arguments& arguments,
                   Budget& budget) {
  budget.spend(Budget::kNodeCost);
  Filter filter = find_text_filter(name);
  if (!filter) filter = find_sequence_filter(name);
  if (!filter) fail("the filter '{}' is not supported", name);
  return filter(subject, arguments, budget);
}

}  // namespace lockstep::jinja
