// Values as text: str(), repr() and JSON.
#include <algorithm>
#include <cmath>

#include "jinja/text.h"
#include "jinja/value.h"

namespace lockstep::jinja {

namespace {

// All writers append here, so that a value which shares its parts many times over (and is
// small in memory) is stopped when its text grows, not after.
class Writer {
 public:
  explicit Writer(Budget& budget) : budget_(budget) {}

  void put(std::string_view text) {
    budget_.spend(text.size() + 16);
    out_ += text;
  }
  // Before a text is quoted: each of its characters may become an escape.
  void expect(std::string_view text) {
    const auto odd = [](char c) { return c < ' ' || c > '~'; };
    budget_.spend(text.size() * Budget::kPointCost +
                  static_cast<uint64_t>(std::ranges::count_if(text, odd)) * Budget::kEscapeCost);
  }
  std::string take() { return std::move(out_); }

 private:
  Budget& budget_;
  std::string out_;
};

void put_text_repr(Writer& out, const std::string& text) {
  const bool double_quote =
      text.find('\'') != std::string::npos && text.find('"') == std::string::npos;
  const char32_t quote = double_quote ? '"' : '\'';
  out.expect(text);
  std::string quoted(1, static_cast<char>(quote));
  for (const char32_t point : decode(text)) {
    if (point == quote || point == '\\') {
      quoted += '\\';
      append_point(quoted, point);
    } else if (point == '\n') {
      quoted += "\\n";
    } else if (point == '\r') {
      quoted += "\\r";
    } else if (point == '\t') {
      quoted += "\\t";
    } else if (is_printable(point) || point >= kRawByte) {
      append_point(quoted, point);
    } else if (point < 0x100) {
      quoted += fmt::format("\\x{:02x}", static_cast<uint32_t>(point));
    } else if (point < 0x10000) {
      quoted += fmt::format("\\u{:04x}", static_cast<uint32_t>(point));
    } else {
      quoted += fmt::format("\\U{:08x}", static_cast<uint32_t>(point));
    }
  }
  append_point(quoted, quote);
  out.put(quoted);
}

std::string scalar_text(const Value& value) {
  if (value.is<Undefined>()) return "";
  if (value.is<None>()) return "None";
  if (const bool* flag = value.as<bool>()) return *flag ? "True" : "False";
  if (const int64_t* number = value.as<int64_t>()) return fmt::format("{}", *number);
  if (const double* number = value.as<double>()) return float_text(*number);
  fail("printing a {} is not supported", type_name(value));
}

void put_repr(Writer& out, const Value& value) {
  if (const std::string* text = value.text()) return put_text_repr(out, *text);
  if (value.is<Undefined>()) return out.put("Undefined");
  if (const List* list = value.list()) {
    if (list->kind != ListKind::kList && list->kind != ListKind::kTuple) {
      fail("printing a {} is not supported; pass it through the filter 'list'", type_name(value));
    }
    const bool tuple = list->kind == ListKind::kTuple;
    out.put(tuple ? "(" : "[");
    for (size_t i = 0; i < list->items.size(); ++i) {
      if (i) out.put(", ");
      put_repr(out, list->items[i]);
    }
    if (tuple && list->items.size() == 1) out.put(",");
    return out.put(tuple ? ")" : "]");
  }
  if (const Dict* dict = value.dict()) {
    out.put("{");
    bool first = true;
    for (const auto& [key, item] : dict->items) {
      if (!std::exchange(first, false)) out.put(", ");
      put_repr(out, key);
      out.put(": ");
      put_repr(out, item);
    }
    return out.put("}");
  }
  out.put(scalar_text(value));
}

void put_json_text(Writer& out, const std::string& text, bool ascii) {
  out.expect(text);
  std::string quoted = "\"";
  const auto escape = [&](char32_t unit) {
    quoted += fmt::format("\\u{:04x}", static_cast<uint32_t>(unit));
  };
  for (const char32_t point : decode(text)) {
    switch (point) {
      case '"':
        quoted += "\\\"";
        break;
      case '\\':
        quoted += "\\\\";
        break;
      case '\n':
        quoted += "\\n";
        break;
      case '\r':
        quoted += "\\r";
        break;
      case '\t':
        quoted += "\\t";
        break;
      case '\f':
        quoted += "\\f";
        break;
      case '\b':
        quoted += "\\b";
        break;
      default:
        if (point < 0x20 || (ascii && point >= 0x7F && point < 0x10000)) {
          if (point == 0x7F) {
            quoted += '\x7F';
          } else {
            escape(point);
          }
        } else if (ascii && point >= 0x10000 && point < kRawByte) {
          escape(0xD800 + ((point - 0x10000) >> 10));
          escape(0xDC00 + ((point - 0x10000) & 0x3FF));
        } else {
          append_point(quoted, point);
        }
    }
  }
  quoted += '"';
  out.put(quoted);
}

class JsonWriter {
 public:
  JsonWriter(Writer& out, const JsonStyle& style, Budget& budget)
      : out_(out), style_(style), budget_(budget) {}

  void put(const Value& value, int32_t level) {
    if (const std::string* text = value.text()) {
      return put_json_text(out_, *text, style_.ensure_ascii);
    }
    if (const List* list = value.list()) return put_list(value, *list, level);
    if (const Dict* dict = value.dict()) return put_dict(*dict, level);
    out_.put(scalar(value));
  }

 private:
  static std::string scalar(const Value& value) {
    if (value.is<None>()) return "null";
    if (const bool* flag = value.as<bool>()) return *flag ? "true" : "false";
    if (const int64_t* number = value.as<int64_t>()) return fmt::format("{}", *number);
    if (const double* number = value.as<double>()) {
      if (std::isnan(*number)) return "NaN";
      if (std::isinf(*number)) return *number < 0 ? "-Infinity" : "Infinity";
      return float_text(*number);
    }
    fail("a value of type {} cannot be written as JSON", type_name(value));
  }

  void new_line(int32_t level) {
    if (!style_.pretty) return;
    out_.put("\n");
    for (int32_t i = 0; i < level; ++i) out_.put(style_.indent);
  }

  void put_list(const Value& value, const List& list, int32_t level) {
    if (list.kind != ListKind::kList && list.kind != ListKind::kTuple) {
      fail("a value of type {} cannot be written as JSON", type_name(value));
    }
    if (list.items.empty()) return out_.put("[]");
    out_.put("[");
    for (size_t i = 0; i < list.items.size(); ++i) {
      if (i) out_.put(style_.item_separator);
      new_line(level + 1);
      put(list.items[i], level + 1);
    }
    new_line(level);
    out_.put("]");
  }

  void put_dict(const Dict& dict, int32_t level) {
    if (dict.items.empty()) return out_.put("{}");
    std::vector<const std::pair<Value, Value>*> items;
    for (const auto& item : dict.items) items.push_back(&item);
    if (style_.sort_keys) {
      std::stable_sort(items.begin(), items.end(), [&](const auto* a, const auto* b) {
        return order(a->first, b->first, budget_) == -1;
      });
    }
    out_.put("{");
    bool first = true;
    for (const auto* item : items) {
      if (!std::exchange(first, false)) out_.put(style_.item_separator);
      new_line(level + 1);
      if (item->first.list()) fail("a tuple cannot be a key in JSON");
      const std::string key = item->first.text() ? *item->first.text() : scalar(item->first);
      put_json_text(out_, key, style_.ensure_ascii);
      out_.put(style_.key_separator);
      put(item->second, level + 1);
    }
    new_line(level);
    out_.put("}");
  }

  Writer& out_;
  const JsonStyle& style_;
  Budget& budget_;
};

}  // namespace

std::string to_text(const Value& value, Budget& budget) {
  if (const std::string* text = value.text()) {
    budget.spend(text->size());
    return *text;
  }
  if (!value.list() && !value.dict()) return scalar_text(value);
  return repr(value, budget);
}

std::string repr(const Value& value, Budget& budget) {
  Writer out(budget);
  put_repr(out, value);
  return out.take();
}

std::string to_json(const Value& value, const JsonStyle& style, Budget& budget) {
  Writer out(budget);
  JsonWriter(out, style, budget).put(value, 0);
  return out.take();
}

}  // namespace lockstep::jinja
