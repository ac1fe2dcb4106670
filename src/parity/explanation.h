// What the difference of two sides is made of, where each ran a model file of its own.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::parity {

// With x and y as each side recorded them, f the op (or the stretch of ops) by the reference's file
// and g the same by the suspect's, both in exact arithmetic, the difference of a result is
//   y_suspect - y_reference = g(x_reference) - f(x_reference)   weights
//                           + g(x_suspect) - g(x_reference)     inherited
//                           + y_suspect - g(x_suspect)          rounding
//                           + f(x_reference) - y_reference      rounding of the reference
enum class Origin { kWeights, kInherited, kRounding, kReferenceRounding };
inline constexpr size_t kOrigins = 4;
std::string_view name(Origin origin);

// Added up over elements.
struct Parts {
  double reference = 0;                    // squares of the reference's numbers
  double difference = 0;                   // squares of the difference
  std::array<double, kOrigins> squares{};  // of each part
  std::array<double, kOrigins>
      products{};  // of each part with the difference: their sum is `difference`

  void add(const Parts& other);

  // Root mean square over that of the reference's numbers.
  double relative() const { return relative_of(difference); }
  double relative(Origin origin) const { return relative_of(squares[static_cast<size_t>(origin)]); }
  // The part's share of the difference. The shares of all parts add up to 1; a part that works
  // against the others has a negative one.
  double share(Origin origin) const {
    return difference > 0 ? products[static_cast<size_t>(origin)] / difference : 0;
  }

 private:
  double relative_of(double of) const { return reference > 0 ? std::sqrt(of / reference) : 0; }
};

// What rounds in an op: the factors of a product with weights and its sum, the cache, or anything
// else. Several ops are kSeveral.
enum class Work { kProduct, kAttention, kOther, kSeveral };

// A checkpoint, computed from those before it that both sides recorded.
struct ExplainedValue {
  struct Tensor {
    std::string name;              // in the reference's file
    std::string reference_format;  //
    std::string suspect_format;
  };
  std::string checkpoint;
  int64_t layer = -1;
  int64_t positions = 0;
  Work work = Work::kOther;
  std::vector<Tensor> tensors;  // that go into it
  Parts parts;
};

// The next token's probabilities. A divergence is of the second distribution from the first, in
// nats, on average over the positions.
struct ExplainedChoices {
  int64_t positions = 0;
  double divergence = 0;  // of the suspect's recorded logits from the reference's
  // What each part has of that: by its product with the difference, weighted by the reference's
  // probabilities, which is what the divergence is made of where it is small. They add up to it.
  std::array<double, kOrigins> parts{};
  // Each part by itself: of the two exact forward passes, and of what was recorded from them.
  double weights_alone = 0;
  double rounding_alone = 0;
  double reference_rounding_alone = 0;
  int64_t same = 0;             // positions where the sides have the same largest logit
  int64_t same_by_weights = 0;  // where the two exact passes do
};

struct Explanation {
  std::vector<std::string> settings;  // that the files do not share, clauses
  bool weights_differ = false;
  std::vector<ExplainedValue> values;  // by op, in order of execution
  std::vector<ExplainedValue> layers;  // the output of each layer, from that of the one before
  std::optional<ExplainedChoices> choices;
  std::string no_choices;  // why there are none, a clause
};

}  // namespace lockstep::parity
