#include "trace/npz.h"

#include <algorithm>

#include "base/text.h"

namespace lockstep::trace {
namespace {

std::string npy_header(std::string_view type, const std::vector<int64_t>& shape) {
  std::string dims;
  for (const int64_t extent : shape) dims += fmt::format("{}, ", extent);
  if (shape.size() > 1) dims.resize(dims.size() - 2);
  std::string dict = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}", type,
                                 shape.size() == 1 ? fmt::format("{},", shape[0]) : dims);
  // Magic, version and length take 10 bytes; data starts at a multiple of 64.
  dict.append(63 - (10 + dict.size()) % 64, ' ');
  dict += '\n';
  std::string out = "\x93NUMPY";
  out += '\x01';
  out += '\0';
  out += static_cast<char>(dict.size() & 0xff);
  out += static_cast<char>(dict.size() >> 8 & 0xff);
  return out + dict;
}

// Archives are unpacked too: a name leads out of no folder and into none. Different names stay so.
std::string member_name(const std::string& name) {
  std::string out;
  for (const char c : name) {
    const bool hidden = c == '.' && out.empty();
    if (hidden || c == '/' || c == '\\' || c == ':' || c == '%')
      out += fmt::format("%{:02X}", static_cast<unsigned>(c));
    else
      out += c;
  }
  return out;
}

}  // namespace

DType npy_dtype(DType dtype) {
  return dtype == DType::kBF16 ? DType::kF32 : dtype;
}

std::string_view npy_type(DType dtype) {
  constexpr std::string_view kTypes[] = {"<f8", "<f4", "<f2", "<f4"};
  return kTypes[static_cast<int>(dtype)];
}

Result<NpzWriter> NpzWriter::create(const std::string& path) {
  LS_TRY(ZipWriter zip, ZipWriter::create(path));
  return NpzWriter(std::move(zip));
}

Result<void> NpzWriter::begin(const std::string& name, std::string_view type, int64_t item_bytes,
                              const std::vector<int64_t>& shape) {
  if (!names_.insert(name).second)
    return error("two arrays have the name '{}': leave one of them out", printable(name));
  const std::string header = npy_header(type, shape);
  int64_t bytes = item_bytes;
  for (const int64_t extent : shape) bytes *= extent;
  LS_TRY_VOID(zip_.begin(member_name(name) + ".npy", static_cast<int64_t>(header.size()) + bytes));
  return zip_.write(std::as_bytes(std::span(header)));
}

Result<void> NpzWriter::add(const std::string& name, std::span<const int64_t> values) {
  LS_TRY_VOID(begin(name, "<i8", 8, {static_cast<int64_t>(values.size())}));
  LS_TRY_VOID(write(std::as_bytes(values)));
  return end();
}

Result<void> NpzWriter::add(const std::string& name, std::span<const double> values) {
  LS_TRY_VOID(begin(name, "<f8", 8, {static_cast<int64_t>(values.size())}));
  LS_TRY_VOID(write(std::as_bytes(values)));
  return end();
}

Result<void> NpzWriter::add(const std::string& name, std::span<const std::string> texts) {
  size_t longest = 1;
  for (const std::string& text : texts) longest = std::max(longest, text.size());
  // numpy's text is UTF-32, padded with zeros.
  std::vector<uint32_t> codes(texts.size() * longest);
  for (size_t i = 0; i < texts.size(); ++i) {
    size_t at = 0;
    for (size_t j = 0; at < texts[i].size(); ++j) {
      const Utf8Char c = utf8_char(texts[i], at);
      codes[i * longest + j] = c.length > 0 ? c.code : 0xfffd;
      at += static_cast<size_t>(std::max(c.length, 1));
    }
  }
  LS_TRY_VOID(begin(name, fmt::format("<U{}", longest), static_cast<int64_t>(4 * longest),
                    {static_cast<int64_t>(texts.size())}));
  LS_TRY_VOID(write(std::as_bytes(std::span(codes))));
  return end();
}

}  // namespace lockstep::trace
