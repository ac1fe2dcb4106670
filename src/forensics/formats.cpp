#include "forensics/formats.h"

#include <algorithm>
#include <cmath>

#include "forensics/format_words.h"

namespace lockstep::forensics {
namespace {

constexpr double kProof = 40;   // bits; chance gives as many once in 10^12 rows
constexpr double kDenial = -6;  // of a row among others that prove it; true f32 deny more

// A log does not say which NaN it was.
bool bits_known(const Row& row, uint32_t word) {
  return row.exact || exponent_of(word) != 0xff || (word & 0x7fffff) == 0;
}

struct Small {
  Format format;
  int shift;  // of the exponent
  int mask;
};
constexpr Small kSmall[] = {{Format::kHalf, 10, 0x1f}, {Format::kBfloat, 7, 0xff}};

// Whether the low halves have the size that the high halves have. Those of true f32 are noise.
double pair_bits(const std::vector<uint32_t>& words, const std::vector<uint32_t>& fresh,
                 const Small& small) {
  std::vector<int> upper;
  for (const uint32_t word : words)
    if ((word >> 16 & 0x7fff) != 0)
      upper.push_back(static_cast<int>(word >> 16 >> small.shift) & small.mask);
  if (upper.empty()) return 0;
  const int middle = middle_of(std::move(upper));
  double bits = 0;
  for (const uint32_t word : fresh) {
    const int exponent = static_cast<int>((word & 0xffff) >> small.shift) & small.mask;
    if ((word & 0x7fff) == 0)
      bits -= 1;
    else if (exponent == 0 || exponent == small.mask)
      bits += kAgainst;
    else
      bits += size_bits(exponent - middle, small.mask + 1);
  }
  return bits;
}

// How much likelier a byte is as a small integer of about Gaussian size than as any byte.
double byte_bits(uint32_t byte) {
  static const std::array<double, 256> kTable = [] {
    std::array<double, 256> table{};
    for (int i = 0; i < 256; ++i) {
      const double value = i < 128 ? i : i - 256;
      double chance = 0.02 / 256;
      for (const double sigma : {6.0, 12.0, 24.0, 48.0})
        chance += 0.98 / 4 * std::exp(-0.5 * value * value / (sigma * sigma)) /
                  (sigma * std::sqrt(2 * M_PI));
      table[static_cast<size_t>(i)] = std::log2(256 * chance);
    }
    return table;
  }();
  return kTable[byte & 0xff];
}

// Small integers are floats of the most different sizes: from one tenth of them to the other.
bool is_wide(const std::vector<uint32_t>& words) {
  std::vector<int> exponents;
  for (const uint32_t word : words) exponents.push_back(exponent_of(word));
  const auto [least, most] = std::ranges::minmax_element(exponents);
  if (exponents.empty() || *most - *least < 24) return false;
  std::ranges::sort(exponents);
  const size_t tenth = exponents.size() / 10;
  return exponents[exponents.size() - 1 - tenth] - exponents[tenth] >= 24;
}

bool is_text(const std::vector<uint32_t>& words) {
  int64_t printable = 0;
  for (const uint32_t word : words)
    for (int place = 0; place < 32; place += 8)
      printable += (word >> place & 0xff) >= 0x20 && (word >> place & 0xff) < 0x7f;
  return printable * 10 > static_cast<int64_t>(words.size()) * 36;
}

// Whether small integers are to be thought of.
bool may_be_integers(const std::vector<uint32_t>& words, int64_t looked_at) {
  const auto count = static_cast<int64_t>(words.size());
  // Few numbers that are not zero are no row of integers, but probabilities that got too small.
  return count * 4 >= looked_at * 3 && is_wide(words) && !is_text(words);
}

// As a float a denormal, or a NaN with all upper bits set.
bool is_small_integer(uint32_t word) {
  const auto value = static_cast<int32_t>(word);
  return value > -(1 << 23) && value < 1 << 23;
}

void integer_bits(const std::vector<uint32_t>& words, int64_t fresh_words,
                  const std::vector<uint32_t>& fresh_halves, int64_t looked_at, FormatBits& out) {
  constexpr double kNo = -10;
  double& int8 = out.bits[static_cast<size_t>(Format::kInt8)];
  double& int16 = out.bits[static_cast<size_t>(Format::kInt16)];
  double& int32 = out.bits[static_cast<size_t>(Format::kInt32)];
  int32 = static_cast<int64_t>(words.size()) * 5 < looked_at * 2 ||
                  !std::ranges::all_of(words, is_small_integer)
              ? 2 * kNo
              : 6 * static_cast<double>(fresh_words);
  if (!may_be_integers(words, looked_at)) {
    int8 = int16 = out.bits[static_cast<size_t>(Format::kInt8Any)] = kNo;
    return;
  }
  for (const uint32_t word : fresh_halves) {
    for (size_t place = 0; place < 4; ++place) out.int8[place] += byte_bits(word >> 8 * place);
    for (size_t place = 0; place < 2; ++place)
      out.int16[place] += byte_bits(word >> (16 * place + 8));
  }
  for (const double bits : out.int8) int8 += bits;
  for (const double bits : out.int16) int16 += bits;
}

// Whether the integers show in every place that they have.
template <size_t n>
bool in_every_place(const std::array<double, n>& places) {
  double sum = 0, least = places[0];
  for (const double bits : places) sum += bits, least = std::min(least, bits);
  return least > std::max(4.0, sum / static_cast<double>(8 * n));
}

bool sound(const FormatBits& total, Format format) {
  if (format == Format::kInt8) return in_every_place(total.int8);
  if (format == Format::kInt8Any) return in_every_place(total.int8_any);
  if (format == Format::kInt16) return in_every_place(total.int16);
  return true;
}

void accumulate(FormatBits& total, const FormatBits& row) {
  for (size_t i = 0; i < kFormats; ++i) total.bits[i] += row.bits[i];
  for (size_t i = 0; i < 4; ++i) total.int8[i] += row.int8[i];
  for (size_t i = 0; i < 4; ++i) total.int8_any[i] += row.int8_any[i];
  for (size_t i = 0; i < 2; ++i) total.int16[i] += row.int16[i];
}

}  // namespace

// Each half counts once: levels of a grid, and numbers close to each other, have the same halves
// over and over.
std::vector<uint32_t> FormatEvidence::fresh_halves(const std::vector<uint32_t>& words) {
  std::vector<uint32_t> fresh;
  for (const uint32_t word : words) {
    auto &&low = halves_[0][word & 0xffff], &&high = halves_[1][word >> 16];
    if (!low && !high) fresh.push_back(word);
    low = high = true;
  }
  return fresh;
}

// Each byte is foretold by how often its like came before, in whatever place: where the bytes of
// all places are alike, and not all bytes are as frequent, that beats chance.
void FormatEvidence::add_int8_of_any_size(const std::vector<uint32_t>& fresh, FormatBits& out) {
  double& bits = out.bits[static_cast<size_t>(Format::kInt8Any)];
  if (bits < 0) return;
  int64_t seen = 0;
  for (const int64_t count : nibbles_) seen += count;
  for (const uint32_t word : fresh)
    for (size_t place = 0; place < 4; ++place) {
      int64_t& count = nibbles_[word >> (8 * place + 4) & 0xf];
      const double gain =
          std::log2(16 * (static_cast<double>(count) + 0.5) / (static_cast<double>(seen) + 8));
      out.int8_any[place] += gain;
      bits += gain;
      ++count;
      ++seen;
    }
}

FormatBits FormatEvidence::add(const Row& row) {
  FormatBits out;
  // With six digits the exponents of both halves are right.
  if (row.dtype != DType::kF32 || row.digits < 6) return out;
  std::vector<uint32_t> words;
  int64_t looked_at = 0, fresh_words = 0;
  for (const int64_t start : pairs_of(row))
    for (int64_t i = start; i < std::min(start + 2, row.count()); ++i, ++looked_at) {
      const uint32_t word = word_of(row, i);
      if ((word & 0x7fffffff) != 0 && bits_known(row, word)) words.push_back(word);
    }
  for (const uint32_t word : words) {
    if (is_small_integer(word)) fresh_words += words_.insert(word).second;
    out.huge = out.huge || exponent_of(word) > 127 + 20;
  }
  const std::vector<uint32_t> halves = fresh_halves(words);
  for (const Small& small : kSmall)
    out.bits[static_cast<size_t>(small.format)] = pair_bits(words, halves, small);
  if (row.digits >= 8) {
    integer_bits(words, fresh_words, halves, looked_at, out);
    add_int8_of_any_size(halves, out);
  }
  double best = -1e9;
  int64_t phase = 0;
  for (const int64_t candidate : {0, 1}) {
    const double bits = double_bits(splits_of(row, candidate), doubles_);
    if (bits > best) best = bits, phase = candidate;
  }
  out.bits[static_cast<size_t>(Format::kDouble)] = best - 1;
  if (best <= 0) return out;
  for (const Split& split : splits_of(row, phase)) {
    doubles_.lower.insert(split.lower);
    doubles_.upper.insert(split.upper);
  }
  return out;
}

std::optional<Format> format_of_row(const Row& row) {
  return formats_of_rows({FormatEvidence().add(row)}).front();
}

std::vector<std::optional<Format>> formats_of_rows(const std::vector<FormatBits>& rows) {
  std::vector<std::optional<Format>> out(rows.size());
  double best = kProof + std::log2(static_cast<double>(std::max<size_t>(rows.size(), 1)));
  for (size_t f = 0; f < kFormats; ++f) {
    const auto format = static_cast<Format>(f);
    // The stretch of rows with the largest sum.
    double sum = 0, largest = 0;
    size_t start = 0, begin = 0, end = 0;
    for (size_t i = 0; i < rows.size(); ++i) {
      if (sum <= 0) sum = 0, start = i;
      sum += rows[i].of(format);
      if (sum > largest) largest = sum, begin = start, end = i + 1;
    }
    FormatBits total;
    for (size_t i = begin; i < end; ++i) accumulate(total, rows[i]);
    // Whatever is alike in all places may be so by chance where there are few.
    const double needed = format == Format::kInt8Any ? kProof / 2 : 0;
    if (largest < best + needed || !sound(total, format)) continue;
    best = largest;
    std::ranges::fill(out, std::nullopt);
    // Rows that are garbage in any case need less to be of the same kind.
    for (size_t i = 0; i < rows.size(); ++i)
      if ((i >= begin && i < end && rows[i].of(format) > kDenial) ||
          (rows[i].huge && rows[i].of(format) > 3 * kDenial))
        out[i] = format;
  }
  return out;
}

}  // namespace lockstep::forensics
