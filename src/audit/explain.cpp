#include "audit/explain.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "audit/find_rows.h"
#include "audit/points.h"
#include "base/text.h"

namespace lockstep::audit {
namespace {

// "blk.7.attn_q.weight" without the number of its layer.
std::string without_layer(std::string_view name) {
  constexpr std::string_view kLayer = "blk.";
  if (!name.starts_with(kLayer)) return std::string(name);
  const size_t end = name.find('.', kLayer.size());
  return end == std::string_view::npos ? std::string(name)
                                       : fmt::format("blk.*{}", name.substr(end));
}

// The order of a head's rows that one convention of rope has, out of the other's.
struct RopeOrder {
  int64_t head;     // rows
  int64_t rotated;  // of these, the first
  bool to_adjacent;

  int64_t row(int64_t row) const {
    const int64_t in_head = row % head;
    if (in_head >= rotated) return row;
    const int64_t half = rotated / 2;
    const int64_t from =
        to_adjacent ? in_head % 2 * half + in_head / 2 : in_head % half * 2 + in_head / half;
    return row - in_head + from;
  }
};

class Explainer {
 public:
  Explainer(const gguf::Tensor& a, const gguf::Tensor& b, const Measured* measured,
            const Origins& origins)
      : tensor_a_(a),
        tensor_b_(b),
        a_(a),
        b_(b),
        measured_(measured),
        origins_(origins),
        points_(a_, b_, measured),
        dims_a_(trimmed(a.dims)),
        dims_b_(trimmed(b.dims)) {
    is_vector_ = dims_a_.size() == 1;
    width_ = is_vector_ ? 1 : dims_a_[0];
    rows_ = width_ > 0 ? a_.count() / width_ : 0;
  }

  Explanation run() {
    Explanation found;
    if (b_.count() == 0 || points_.empty()) return found;
    if (measured_ != nullptr && dims_a_ == dims_b_) {
      if (same_shape(found)) return found;
    } else {
      if (other_shape(found)) return found;
    }
    return found;
  }

 private:
  bool same_shape(Explanation& found) {
    if (points_.b_is_zero()) return give(found, How::kUnknown, "B has zeros where A has numbers");
    return straight_line(found) || halves(found) || rope(found) || transposed(found) ||
           other_tensor(found) || moved(found) || line_of_both(found) || place(found);
  }

  bool other_shape(Explanation& found) {
    if (measured_ != nullptr) {
      if (measured_->explained()) {
        const bool turned = dims_a_.size() == 2 && dims_b_.size() == 2 &&
                            dims_a_[0] == dims_b_[1] && dims_a_[1] == dims_b_[0];
        return give(found, turned ? How::kTransposed : How::kUnknown,
                    fmt::format("the same numbers in the same order, but the shape is {} instead "
                                "of {}",
                                tensor_b_.shape(), tensor_a_.shape()));
      }
      if (transposed(found)) return true;
    }
    if (other_tensor(found)) return true;
    return give(found, How::kUnknown,
                fmt::format("shape {} instead of {}", tensor_b_.shape(), tensor_a_.shape()));
  }

  static bool give(Explanation& found, How how, std::string detail) {
    found = {how, std::move(detail)};
    return true;
  }

  bool straight_line(Explanation& found) {
    const Points::Line offset = points_.offset(), scale = points_.scale();
    // Of numbers that are all alike both fit: the known mistake is 1 too much or too little.
    const bool by_one = offset.fits && std::fabs(std::fabs(offset.offset) - 1) < 1e-2;
    if (offset.fits && (by_one || !scale.fits))
      return give(
          found, How::kOffset,
          fmt::format("B = A {} {:.6g}{}", sign(offset.offset), std::fabs(offset.offset), share()));
    if (scale.fits)
      return give(found, How::kScaled, fmt::format("B = {:.6g} * A{}", scale.factor, share()));
    return false;
  }

  bool line_of_both(Explanation& found) {
    const Points::Line line = points_.scale_and_offset();
    if (!line.fits) return false;
    return give(found, How::kUnknown,
                fmt::format("B = {:.6g} * A {} {:.6g}", line.factor, sign(line.offset),
                            std::fabs(line.offset)));
  }

  static const char* sign(double x) { return x < 0 ? "-" : "+"; }

  // Where only a part of the tensor is wrong.
  std::string share() const {
    const auto pieces = static_cast<int64_t>(measured_->bad.size());
    if (measured_->bad_pieces * 10 > pieces * 9) return "";
    return fmt::format(
        ", in {:.2g}% of the tensor",
        100 * static_cast<double>(measured_->bad_pieces) / static_cast<double>(pieces));
  }

  // The same of another order, which leaves some rows where they were.
  std::string where() const {
    if (measured_ == nullptr) return "";
    const auto pieces = static_cast<int64_t>(measured_->bad.size());
    if (measured_->bad_pieces * 4 > pieces * 3) return "";
    return " where B is wrong" + share();
  }

  bool halves(Explanation& found) {
    if (rows_ % 2 == 0 && points_.fits(a_, [&](int64_t i) {
          return (i / width_ + rows_ / 2) % rows_ * width_ + i % width_;
        }))
      return give(found, How::kHalvesSwapped,
                  fmt::format("rows {} to {} stand first{}", rows_ / 2, rows_ - 1, where()));
    const int64_t of_matrix = dims_a_.size() > 2 ? dims_a_[1] : 1;  // as each expert has one
    if (of_matrix % 2 == 0 && points_.fits(a_, [&](int64_t i) {
          const int64_t row = i / width_, in = row % of_matrix;
          return (row - in + (in + of_matrix / 2) % of_matrix) * width_ + i % width_;
        }))
      return give(found, How::kHalvesSwapped,
                  fmt::format("rows {} to {} of every matrix stand first{}", of_matrix / 2,
                              of_matrix - 1, where()));
    if (!is_vector_ && width_ % 2 == 0 && points_.fits(a_, [&](int64_t i) {
          return i / width_ * width_ + (i % width_ + width_ / 2) % width_;
        }))
      return give(found, How::kHalvesSwapped, "the right half of every row stands first" + where());
    return false;
  }

  bool rope(Explanation& found) {
    for (const int64_t head : origins_.head_sizes) {
      if (head < 4 || rows_ % head != 0) continue;
      std::vector<int64_t> rotated = origins_.rotated;
      rotated.push_back(head);
      for (const int64_t turned : rotated) {
        if (turned < 4 || turned > head || turned % 2 != 0) continue;
        for (const bool to_adjacent : {true, false}) {
          const RopeOrder order = {head, turned, to_adjacent};
          if (!points_.fits(a_,
                            [&](int64_t i) { return order.row(i / width_) * width_ + i % width_; }))
            continue;
          return give(found, How::kPermuted,
                      fmt::format("rows of each head of {} lie as for rope on {}, A's as for rope "
                                  "on {}{}",
                                  head, to_adjacent ? "adjacent pairs" : "halves",
                                  to_adjacent ? "halves" : "adjacent pairs", where()));
        }
      }
    }
    return false;
  }

  // Matrices within the tensor, one after another, each turned.
  bool transposed(Explanation& found) {
    if (dims_a_.size() < 2) return false;
    const int64_t columns = dims_a_[0], rows = dims_a_[1], size = columns * rows;
    const auto turned = [size](int64_t across) {
      return [size, across](int64_t i) {
        const int64_t in = i % size;
        return i - in + in % across * (size / across) + in / across;
      };
    };
    if (!points_.fits(a_, turned(rows)) && !points_.fits(a_, turned(columns))) return false;
    return give(found, How::kTransposed, "B's numbers are A's, read column by column" + where());
  }

  bool other_tensor(Explanation& found) {
    const gguf::Tensor* elsewhere = nullptr;
    for (const gguf::Tensor& tensor : origins_.tensors) {
      if (tensor.name == tensor_a_.name || !tensor.format->decodable ||
          trimmed(tensor.dims) != dims_b_)
        continue;
      if (!points_.fits(Values(tensor), [](int64_t i) { return i; })) continue;
      // Without a measurement nobody knows how near is near enough.
      if (measured_ == nullptr &&
          !measure(Values(tensor), b_, b_.count(), [](int64_t) {}).explained())
        continue;
      if (without_layer(tensor.name) == without_layer(tensor_a_.name))
        return give(found, How::kOtherLayer,
                    fmt::format("it is A's {}{}", printable(tensor.name), where()));
      if (elsewhere == nullptr) elsewhere = &tensor;
    }
    if (elsewhere == nullptr) return false;
    return give(found, How::kOtherTensor,
                fmt::format("it is A's {}{}", printable(elsewhere->name), where()));
  }

  bool moved(Explanation& found) {
    const auto detail =
        is_vector_ ? find_numbers(a_, b_, *measured_) : find_rows(a_, b_, width_, *measured_);
    if (detail) return give(found, How::kPermuted, *detail);
    if (is_vector_) return false;
    if (const auto columns = find_columns(a_, b_, width_, *measured_))
      return give(found, How::kPermuted, *columns);
    return false;
  }

  // The first number that is off, for who wants to look.
  bool place(Explanation& found) {
    const auto bad = std::ranges::find(measured_->bad, 1);
    if (bad == measured_->bad.end()) return false;
    const int64_t first = (bad - measured_->bad.begin()) * kPiece;
    const int64_t end = std::min(first + kPiece, a_.count());
    int64_t worst = first;
    double most = -1;
    for (int64_t i = first; i < end; ++i) {
      const float x = a_.at(i), y = b_.at(i);
      if (x == y || (std::isnan(x) && std::isnan(y))) continue;
      const double off = std::fabs(static_cast<double>(x) - y);
      if (!(off <= most)) {  // what is no number is the worst
        worst = i;
        most = off;
        if (!std::isfinite(off)) break;
      }
    }
    const int64_t width = dims_a_[0];
    return give(found, How::kUnknown,
                fmt::format("row {}, column {}: A has {:.6g}, B {:.6g}{}", worst / width,
                            worst % width, a_.at(worst), b_.at(worst), share()));
  }

  const gguf::Tensor& tensor_a_;
  const gguf::Tensor& tensor_b_;
  Values a_, b_;
  const Measured* measured_;
  const Origins& origins_;
  Points points_;
  std::vector<int64_t> dims_a_, dims_b_;
  bool is_vector_;
  int64_t width_ = 1, rows_ = 0;  // of a vector, each number is a row
};

}  // namespace

Origins origins_of(const gguf::File& a, std::span<const gguf::Tensor> tensors) {
  Origins origins;
  origins.tensors = tensors;
  const auto arch = a.text("general.architecture");
  if (!arch.ok()) return origins;
  const auto number = [&](std::string_view key) -> int64_t {
    const auto found = a.integer(fmt::format("{}.{}", *arch, key));
    return found.ok() ? *found : 0;
  };
  const int64_t heads = number("attention.head_count");
  const int64_t width = number("embedding_length");
  for (const int64_t size : {number("attention.key_length"), heads > 0 ? width / heads : 0,
                             number("attention.value_length")})
    if (size > 0 && std::ranges::find(origins.head_sizes, size) == origins.head_sizes.end())
      origins.head_sizes.push_back(size);
  if (const int64_t turned = number("rope.dimension_count"); turned > 0)
    origins.rotated.push_back(turned);
  return origins;
}

Explanation explain(const gguf::Tensor& a, const gguf::Tensor& b, const Measured* measured,
                    const Origins& origins) {
  return Explainer(a, b, measured, origins).run();
}

}  // namespace lockstep::audit
