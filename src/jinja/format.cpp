// "{} {name}".format(...) and "%s %d" % ...
#include <charconv>

#include "jinja/library.h"

namespace lockstep::jinja {

namespace {

Value field_value(std::string_view field, size_t& automatic, const Arguments& arguments,
                  Budget& budget) {
  const size_t end = field.find_first_of(".[");
  const std::string head(field.substr(0, end));
  size_t index = 0;
  const auto number = std::from_chars(head.data(), head.data() + head.size(), index);
  const bool positional =
      head.empty() || (number.ec == std::errc() && number.ptr == head.data() + head.size());
  if (head.empty()) index = automatic++;
  const Value* value = arguments.find(positional ? index : SIZE_MAX, positional ? "" : head);
  if (!value) fail("format() has no argument for '{{{}}}'", field);
  if (end == std::string_view::npos) return *value;
  if (field[end] == '[') fail("'[' in a format string is not supported");
  return get_path(*value, Value(std::string(field.substr(end + 1))), budget);
}

}  // namespace

std::string format_braces(const std::string& format, const Arguments& arguments, Budget& budget) {
  std::string out;
  size_t automatic = 0;
  budget.spend(format.size() * 4);
  for (size_t at = 0; at < format.size(); ++at) {
    const char c = format[at];
    if (c != '{' && c != '}') {
      out += c;
      continue;
    }
    if (at + 1 < format.size() && format[at + 1] == c) {
      out += c;
      ++at;
      continue;
    }
    const size_t end = format.find('}', at);
    if (c == '}' || end == std::string::npos) fail("a format string with a single '{}'", c);
    std::string_view field = std::string_view(format).substr(at + 1, end - at - 1);
    if (field.find_first_of(":{") != std::string_view::npos) {
      fail("the format '{{{}}}' is not supported", field);
    }
    bool as_repr = false;
    if (const size_t mark = field.find('!'); mark != std::string_view::npos) {
      as_repr = field.substr(mark) == "!r";
      if (!as_repr && field.substr(mark) != "!s")
        fail("the format '{{{}}}' is not supported", field);
      field = field.substr(0, mark);
    }
    const Value value = field_value(field, automatic, arguments, budget);
    out += as_repr ? repr(value, budget) : to_text(value, budget);
    at = end;
  }
  budget.spend(out.size());
  return out;
}

std::string format_percent(const std::string& format, const Value& values, Budget& budget) {
  const bool tuple = values.list() && values.list()->kind == ListKind::kTuple;
  const std::vector<Value> items = tuple ? values.list()->items : std::vector<Value>{values};
  size_t used = 0;
  std::string out;
  budget.spend(format.size() * 4 + items.size() * Budget::kElementCost);
  for (size_t at = 0; at < format.size(); ++at) {
    if (format[at] != '%') {
      out += format[at];
      continue;
    }
    const char code = ++at < format.size() ? format[at] : ' ';
    if (code == '%') {
      out += '%';
      continue;
    }
    if (code != 's' && code != 'd' && code != 'r') {
      fail("'%{}' in a format string is not supported", code);
    }
    if (used >= items.size()) fail("not enough values for a format string");
    const Value& item = items[used++];
    if (code == 'd') {
      out += fmt::format("{}", integer_argument(item, "the value of '%d'"));
    } else {
      out += code == 's' ? to_text(item, budget) : repr(item, budget);
    }
  }
  if (used < items.size() && !(used == 0 && values.dict())) {
    fail("more values than a format string takes");
  }
  budget.spend(out.size());
  return out;
}

}  // namespace lockstep::jinja
