#include "audit/tensors.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "audit/explain.h"
#include "audit/sides.h"
#include "base/text.h"

namespace lockstep::audit {
namespace {

constexpr std::string_view kOutput = "output.weight";
const std::string kEmbedding = "token_embd.weight";

std::optional<double> finite(double value) {
  return std::isfinite(value) ? std::optional(value) : std::nullopt;
}

bool same_shape(const gguf::Tensor& a, const gguf::Tensor& b) {
  return trimmed(a.dims) == trimmed(b.dims);
}

bool same_bytes(const gguf::Tensor& a, const gguf::Tensor& b) {
  return a.format == b.format && a.data.size() == b.data.size() &&
         (a.data.empty() || std::memcmp(a.data.data(), b.data.data(), a.data.size()) == 0);
}

int64_t byte_count(const gguf::Tensor& tensor) {
  return static_cast<int64_t>(tensor.data.size());
}

Result<void> check_decodable(const Side& side, const gguf::Tensor& tensor) {
  if (tensor.format->decodable) return {};
  return error(
      "{}: tensor {} is {}, which cannot be decoded; expected a format that 'lockstep run' "
      "takes, or the same bytes and shape in both files",
      printable(side.path), printable(tensor.name), tensor.format->name);
}

// A sample's error over what our encoder makes of the same numbers.
std::optional<double> times_encoder(const Measured& measured) {
  if (!(measured.encoder_error > 0)) return std::nullopt;
  return finite(measured.sample_error / measured.encoder_error);
}

void add_numbers(const Measured& measured, TensorAudit& out) {
  out.error = finite(measured.error());
  if (measured.equal()) return;
  out.encoder_error = finite(measured.encoder_error);
  out.best_scale_error = finite(measured.best_scale_error());
  out.times_encoder = times_encoder(measured);
}

// Rows at the end that one side has more: a padded vocabulary.
std::string more_rows(const gguf::Tensor& a, const gguf::Tensor& b) {
  const std::vector<int64_t> dims_a = trimmed(a.dims), dims_b = trimmed(b.dims);
  if (dims_a.size() != 2 || dims_b.size() != 2 || dims_a[0] != dims_b[0]) return "";
  const int64_t common = std::min(dims_a[1], dims_b[1]);
  const Measured measured = measure(Values(a), Values(b), common * dims_a[0], [](int64_t) {});
  return fmt::format("B has {} rows, A {}; the first {} are {}", dims_b[1], dims_a[1], common,
                     measured.equal()       ? "equal"
                     : measured.explained() ? "the same but for quantization"
                                            : "not the same");
}

class TensorPair {
 public:
  TensorPair(const gguf::Tensor& a, const gguf::Tensor& b, const Origins& origins)
      : a_(a), b_(b), origins_(origins) {}

  TensorAudit run(const std::function<void(int64_t)>& advance) const {
    TensorAudit out;
    out.name = a_.name;
    out.format_a = a_.format->name;
    out.format_b = b_.format->name;
    const int64_t bytes = byte_count(a_) + byte_count(b_);
    const bool one_shape = same_shape(a_, b_);
    if (one_shape && same_bytes(a_, b_)) {
      out.error = 0;
      advance(bytes);
      return out;
    }
    if (a_.values() != b_.values()) {
      other_size(out);
      advance(bytes);
      return out;
    }
    int64_t told = 0, values = 0;
    const Measured measured = measure(Values(a_), Values(b_), a_.values(), [&](int64_t n) {
      values += n;
      const auto share = static_cast<double>(values) / static_cast<double>(a_.values());
      const auto done = static_cast<int64_t>(share * static_cast<double>(bytes));
      advance(done - std::exchange(told, done));
    });
    judge(measured, one_shape, out);
    return out;
  }

 private:
  void judge(const Measured& measured, bool one_shape, TensorAudit& out) const {
    add_numbers(measured, out);
    if (one_shape && measured.equal()) return;
    out.verdict = Verdict::kWrong;
    if (one_shape && measured.explained()) {
      if (measured.scaled())
        give_scale(measured, out);
      else
        out.verdict = Verdict::kQuantized;
      return;
    }
    const Explanation found = explain(a_, b_, &measured, origins_);
    out.how = found.how;
    out.detail = found.detail;
    if (one_shape && found.how == How::kUnknown && measured.scaled()) give_scale(measured, out);
  }

  static void give_scale(const Measured& measured, TensorAudit& out) {
    out.how = How::kScaled;
    out.detail =
        fmt::format("B = {:.6g} * A", measured.finer_is_a ? 1 / measured.scale : measured.scale);
  }

  void other_size(TensorAudit& out) const {
    out.verdict = Verdict::kWrong;
    const Explanation found = explain(a_, b_, nullptr, origins_);
    out.how = found.how;
    const std::string rows = found.how == How::kUnknown ? more_rows(a_, b_) : "";
    out.detail = rows.empty() ? found.detail : rows;
  }

  const gguf::Tensor& a_;
  const gguf::Tensor& b_;
  const Origins& origins_;
};

// The tensor that stands for one that the other file lacks: the embedding, for an output matrix.
const gguf::Tensor* tied_to(const Side& side, std::string_view name) {
  return name == kOutput ? side.find(kEmbedding) : nullptr;
}

// A tensor that only one file has.
class Unpaired {
 public:
  Unpaired(const gguf::Tensor& tensor, bool in_a) : tensor_(tensor), in_a_(in_a) {}

  // `other` is the side that lacks it.
  TensorAudit run(const Side& other, const Origins& origins) const {
    if (const gguf::Tensor* tied = tied_to(other, tensor_.name);
        tied != nullptr && tied->format->decodable && tensor_.format->decodable &&
        tied->values() == tensor_.values()) {
      const gguf::Tensor& a = in_a_ ? tensor_ : *tied;
      const gguf::Tensor& b = in_a_ ? *tied : tensor_;
      TensorAudit out = TensorPair(a, b, origins).run([](int64_t) {});
      if (out.verdict == Verdict::kEqual || out.verdict == Verdict::kQuantized) {
        out.name = tensor_.name;
        out.tied = true;
        out.detail =
            fmt::format("tied: {} has none, its embedding has these numbers", in_a_ ? "B" : "A");
        return out;
      }
    }
    TensorAudit out;
    out.name = tensor_.name;
    (in_a_ ? out.format_a : out.format_b) = tensor_.format->name;
    out.verdict = in_a_ ? Verdict::kMissing : Verdict::kExtra;
    out.detail = meaning();
    return out;
  }

 private:
  std::string meaning() const {
    if (tensor_.name == kOutput)
      return fmt::format("{} uses the embedding instead, which is another matrix",
                         in_a_ ? "B" : "A");
    if (tensor_.name.starts_with("rope_f"))
      return fmt::format("{} turns q and k at other frequencies", in_a_ ? "B" : "A");
    return "";
  }

  const gguf::Tensor& tensor_;
  bool in_a_;
};

// Where a part stands in the file that has it in another tensor.
void add_origin(const Side& side, TensorAudit& out) {
  const auto found = side.origins.find(out.name);
  if (found == side.origins.end()) return;
  out.detail += fmt::format("{}{}", out.detail.empty() ? "" : "; ", found->second);
}

}  // namespace

Result<std::vector<TensorAudit>> audit_tensors(const gguf::File& file_a, const gguf::File& file_b,
                                               const std::function<void(int64_t)>& advance) {
  const auto [a, b] = side_by_side(file_a, file_b);
  for (const gguf::Tensor& tensor : a.tensors) {
    const gguf::Tensor* other = b.find(tensor.name);
    if (other == nullptr || (tensor.format->decodable && other->format->decodable)) continue;
    if (same_shape(tensor, *other) && same_bytes(tensor, *other)) continue;
    LS_TRY_VOID(check_decodable(a, tensor));
    LS_TRY_VOID(check_decodable(b, *other));
  }
  // Pages of the files that were read are given back from time to time.
  constexpr int64_t kHeld = int64_t{1} << 26;
  int64_t held = 0;
  const auto give_back = [&] {
    held = 0;
    file_a.release_pages();
    file_b.release_pages();
  };
  const auto told = [&](int64_t bytes) {
    advance(bytes);
    held += bytes;
    if (held >= kHeld) give_back();
  };
  const Origins origins = origins_of(file_a, a.tensors);
  std::vector<TensorAudit> out;
  for (const gguf::Tensor& tensor : a.tensors) {
    if (const gguf::Tensor* other = b.find(tensor.name)) {
      out.push_back(TensorPair(tensor, *other, origins).run(told));
      if (out.back().verdict == Verdict::kWrong) give_back();  // all tensors were looked at
      add_origin(a, out.back());
      add_origin(b, out.back());
    } else {
      out.push_back(Unpaired(tensor, true).run(b, origins));
      told(byte_count(tensor));
    }
  }
  for (const gguf::Tensor& tensor : b.tensors) {
    if (a.find(tensor.name) != nullptr) continue;
    out.push_back(Unpaired(tensor, false).run(a, origins));
    told(byte_count(tensor));
  }
  return out;
}

}  // namespace lockstep::audit
