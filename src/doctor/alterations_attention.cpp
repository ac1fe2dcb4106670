// What engines get wrong in rotations and in attention.
#include <algorithm>
#include <cmath>
#include <utility>

#include "doctor/alterations.h"

namespace lockstep::doctor {

Alteration rope(std::function<bool(op::Rope&)> how) {
  return [how = std::move(how)](Altered& altered, size_t op) {
    return altered.change<op::Rope>(op, [&](op::Rope& rope) {
      op::Rope changed = rope;
      if (!how(changed)) return false;
      // Factors of another number of pairs, as of an op that was altered before.
      if (!changed.factors.empty() && std::ssize(changed.factors) != changed.dims / 2) return false;
      rope = std::move(changed);
      return true;
    });
  };
}

Alteration rope_base(double value) {
  return rope([value](op::Rope& rope) {
    rope.base = value;
    return true;
  });
}

Alteration rope_base_times(double factor) {
  return rope([factor](op::Rope& rope) {
    rope.base *= factor;
    return true;
  });
}

Alteration other_pairing() {
  return rope([](op::Rope& rope) {
    using Pairing = op::Rope::Pairing;
    rope.pairing = rope.pairing == Pairing::kHalves ? Pairing::kAdjacent : Pairing::kHalves;
    return rope.dims > 2;
  });
}

Alteration without_rotation() {
  return rope([](op::Rope& rope) {
    rope.dims = 0;
    rope.factors.clear();
    return true;
  });
}

Alteration rope_dims(int64_t dims) {
  return rope([dims](op::Rope& rope) {
    if (dims <= 0 || dims > rope.head_size || dims % 2 != 0 || dims == rope.dims) return false;
    rope.dims = dims;
    if (!rope.factors.empty()) rope.factors.resize(static_cast<size_t>(dims / 2), 1.0F);
    return true;
  });
}

Alteration without_scaling() {
  return rope([](op::Rope& rope) {
    const bool had = rope.position_scale != 1 || rope.yarn.has_value();
    rope.position_scale = 1;
    return had;
  });
}

Alteration without_factors() {
  return rope([](op::Rope& rope) {
    const bool had = !rope.factors.empty();
    rope.factors.clear();
    return had;
  });
}

Alteration counted_as(std::function<int64_t(int64_t)> position) {
  return [position = std::move(position)](Altered& altered, size_t op) {
    const op::Op& here = altered.op(op);
    const auto* embed = std::get_if<op::Embed>(&here.what);
    const bool table = embed != nullptr && embed->index == op::Embed::Index::kPosition;
    if (!table && !std::holds_alternative<op::Rope>(here.what)) return false;
    altered.deviation(op).position = position;
    return true;
  };
}

Alteration attention(std::function<bool(op::Attention&)> how) {
  return [how = std::move(how)](Altered& altered, size_t op) {
    return altered.change<op::Attention>(op, how);
  };
}

Alteration attention_scale(double value) {
  return attention([value](op::Attention& attention) {
    const bool other = attention.scale != value;
    attention.scale = value;
    return other;
  });
}

Alteration attention_scale_times(double factor) {
  return attention([factor](op::Attention& attention) {
    attention.scale *= factor;
    return true;
  });
}

Alteration window(int64_t value) {
  return attention([value](op::Attention& attention) {
    const bool other = attention.window != value;
    attention.window = value;
    return other;
  });
}

Alteration soft_cap(double value) {
  return attention([value](op::Attention& attention) {
    const bool other = attention.soft_cap != value;
    attention.soft_cap = value;
    return other;
  });
}

Alteration without_sinks() {
  return attention([](op::Attention& attention) {
    return std::exchange(attention.sinks, std::nullopt).has_value();
  });
}

Alteration other_sinks(std::function<double(size_t head, const std::vector<float>& own)> sink) {
  return [sink = std::move(sink)](Altered& altered, size_t op) {
    const auto* own = std::get_if<op::Attention>(&altered.op(op).what);
    if (own == nullptr || !own->sinks) return false;
    const std::vector<float> numbers = decode(*own->sinks);
    std::vector<float> others;
    for (size_t head = 0; head < numbers.size(); ++head)
      others.push_back(static_cast<float>(sink(head, numbers)));
    if (others == numbers) return false;
    const op::Weight kept = altered.keep(*own->sinks, std::move(others));
    return altered.change<op::Attention>(op, [&](op::Attention& attention) {
      attention.sinks = kept;
      return true;
    });
  };
}

Alteration kv_head(std::function<int64_t(const op::Attention&, int64_t head)> map) {
  return [map = std::move(map)](Altered& altered, size_t op) {
    const auto* own = std::get_if<op::Attention>(&altered.op(op).what);
    if (own == nullptr) return false;
    const op::Attention attention = *own;
    bool other = false;
    for (int64_t head = 0; head < attention.heads; ++head) {
      const int64_t kv = map(attention, head);
      if (kv < 0 || kv >= attention.kv_heads) return false;
      other = other || kv != head / (attention.heads / attention.kv_heads);
    }
    if (!other) return false;
    op::Deviation& deviation = altered.deviation(op);
    deviation.kv_head = [=](int64_t head) { return map(attention, head); };
    return true;
  };
}

Alteration interleaved_heads() {
  return kv_head(
      [](const op::Attention& attention, int64_t head) { return head % attention.kv_heads; });
}

Alteration sees(Sees sees) {
  return [sees = std::move(sees)](Altered& altered, size_t op) {
    const auto* own = std::get_if<op::Attention>(&altered.op(op).what);
    if (own == nullptr) return false;
    op::Deviation& deviation = altered.deviation(op);
    deviation.sees = [=, attention = *own](int64_t position, int64_t key) {
      return sees(attention, position, key);
    };
    return true;
  };
}

namespace {

bool in_window(const op::Attention& attention, int64_t position, int64_t key) {
  return attention.window == 0 || key > position - attention.window;
}

}  // namespace

Alteration hidden_as(double score) {
  return [score](Altered& altered, size_t op) {
    const auto* own = std::get_if<op::Attention>(&altered.op(op).what);
    if (own == nullptr) return false;
    op::Deviation& deviation = altered.deviation(op);
    deviation.hidden = score;
    if (!deviation.sees)
      deviation.sees = [attention = *own](int64_t position, int64_t key) {
        return key <= position && in_window(attention, position, key);
      };
    return true;
  };
}

Alteration sees_next() {
  return sees([](const op::Attention& attention, int64_t position, int64_t key) {
    return key <= position + 1 && in_window(attention, position, key);
  });
}

Alteration not_itself() {
  return sees([](const op::Attention& attention, int64_t position, int64_t key) {
    return (key < position || position == 0) && key <= position &&
           in_window(attention, position, key);
  });
}

Alteration no_mask() {
  return sees([](const op::Attention&, int64_t, int64_t) { return true; });
}

Alteration cache_row(CacheRows which, int64_t position, int64_t other) {
  return [=](Altered& altered, size_t op) {
    if (!std::holds_alternative<op::Attention>(altered.op(op).what)) return false;
    op::Deviation& deviation = altered.deviation(op);
    const auto before = deviation.reads;
    deviation.reads = [=](size_t input, int64_t at) {
      const bool concerned =
          (input == 1 && (which & kKeys) != 0) || (input == 2 && (which & kValues) != 0);
      if (concerned && at == position) return other;
      return before ? before(input, at) : at;
    };
    return true;
  };
}

}  // namespace lockstep::doctor
