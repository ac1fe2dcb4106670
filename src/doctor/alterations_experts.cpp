// Alterations of routing, of experts and of what their results are added to.
#include <algorithm>

#include "doctor/alterations.h"
#include "op/experts.h"

namespace lockstep::doctor {

Alteration choose(std::function<bool(op::Choose&)> how) {
  return [how = std::move(how)](Altered& altered, size_t op) {
    return altered.change<op::Choose>(op, how);
  };
}

Alteration skipped_experts(int64_t count) {
  return [count](Altered& altered, size_t op) {
    const op::Op& here = altered.op(op);
    const auto width = [&](op::ValueId id) { return altered.program().value(id).width; };
    if (!std::holds_alternative<op::Choose>(here.what) ||
        width(here.outputs[0]) + count > width(here.inputs[0]))
      return false;
    altered.deviation(op).skipped_experts = count;
    return true;
  };
}

Alteration expert_numbers(int64_t offset) {
  return [offset](Altered& altered, size_t op) {
    if (!std::holds_alternative<op::Choose>(altered.op(op).what)) return false;
    altered.deviation(op).expert_offset = offset;
    return true;
  };
}

Alteration worst_experts() {
  return [](Altered& altered, size_t op) {
    if (!std::holds_alternative<op::Choose>(altered.op(op).what)) return false;
    altered.deviation(op).takes = [](size_t, std::span<double> row) {
      for (double& number : row) number = -number;
    };
    return true;
  };
}

Alteration slot_weights(SlotWeights formula, std::string words) {
  return [formula = std::move(formula), words = std::move(words)](Altered& altered, size_t op) {
    const auto* weigh = std::get_if<op::Weigh>(&altered.op(op).what);
    if (weigh == nullptr) return false;
    op::Deviation& deviation = altered.deviation(op);
    deviation.formula = words;
    deviation.row = [formula, own = *weigh](op::Deviation::InputRows inputs, int64_t,
                                            std::span<double> out) {
      std::vector<double> scores(inputs[0].begin(), inputs[0].end());
      op::score_experts(own.scoring, scores);
      std::vector<double> router;
      std::vector<double> weights;
      double sum = 0;
      for (const double choice : inputs[1]) {
        const int64_t expert = op::chosen_expert(choice, std::ssize(scores));
        if (expert < 0) return;
        router.push_back(inputs[0][static_cast<size_t>(expert)]);
        weights.push_back(scores[static_cast<size_t>(expert)]);
        sum += weights.back();
      }
      for (double& weight : weights) weight *= own.scale / (own.normalize ? sum : 1);
      for (size_t slot = 0; slot < out.size(); ++slot) out[slot] = formula(slot, router, weights);
    };
    return true;
  };
}

Alteration slot_sum(std::function<double(size_t slot, std::span<const double> weights)> share,
                    std::string words) {
  return [share = std::move(share), words = std::move(words)](Altered& altered, size_t op) {
    if (!std::holds_alternative<op::MixExperts>(altered.op(op).what)) return false;
    op::Deviation& deviation = altered.deviation(op);
    deviation.formula = words;
    deviation.row = [share](op::Deviation::InputRows inputs, int64_t, std::span<double> out) {
      std::ranges::fill(out, 0.0);
      for (size_t slot = 0; slot < inputs[0].size(); ++slot) {
        const double factor = share(slot, inputs[0]);
        const auto result = inputs[1].subspan(slot * out.size(), out.size());
        for (size_t i = 0; factor != 0 && i < out.size(); ++i) out[i] += factor * result[i];
      }
    };
    return true;
  };
}

Alteration other_expert_weight(const op::Weight& used) {
  return [used](Altered& altered, size_t op) {
    return altered.change<op::ExpertLinear>(op, [&](op::ExpertLinear& all) {
      if (all.weight.rows != used.rows || all.weight.columns != used.columns) return false;
      all.weight = used;
      return true;
    });
  };
}

Alteration weigh(std::function<bool(op::Weigh&)> how) {
  return [how = std::move(how)](Altered& altered, size_t op) {
    return altered.change<op::Weigh>(op, how);
  };
}

Alteration biased_weights(const op::Weight& bias) {
  return [numbers = decode(bias)](Altered& altered, size_t op) {
    const auto* weigh = std::get_if<op::Weigh>(&altered.op(op).what);
    if (weigh == nullptr) return false;
    op::Deviation& deviation = altered.deviation(op);
    deviation.formula = "weights of score + bias";
    deviation.row = [numbers, own = *weigh](op::Deviation::InputRows inputs, int64_t,
                                            std::span<double> out) {
      std::vector<double> scores(inputs[0].begin(), inputs[0].end());
      const std::span<const double> choice = inputs[1];
      op::score_experts(own.scoring, scores);
      double sum = 0;
      for (size_t slot = 0; slot < out.size(); ++slot) {
        const int64_t expert = op::chosen_expert(choice[slot], std::ssize(scores));
        if (expert < 0) return;
        const auto e = static_cast<size_t>(expert);
        sum += out[slot] = scores[e] + static_cast<double>(numbers[e]);
      }
      for (double& weight : out) weight *= own.scale / (own.normalize ? sum : 1);
    };
    return true;
  };
}

Alteration weights_of_expert(int64_t offset) {
  return [offset](Altered& altered, size_t op) {
    return altered.change<op::ExpertLinear>(op, [&](op::ExpertLinear& all) {
      const auto turned = [&](op::Weight& weight) {
        const auto size = static_cast<int64_t>(weight.data.size()) / all.experts;
        auto made =
            std::make_shared<std::vector<std::byte>>(weight.data.begin(), weight.data.end());
        const int64_t first = ((offset % all.experts + all.experts) % all.experts) * size;
        std::rotate(made->begin(), made->begin() + first, made->end());
        weight.data = *made;
        weight.mapped = false;
        weight.made = std::move(made);
      };
      if (all.experts < 2) return false;
      turned(all.weight);
      if (all.bias) turned(*all.bias);
      return true;
    });
  };
}

Alteration scaled_sum() {
  return [](Altered& altered, size_t op) {
    const op::Op here = altered.op(op);
    if (!std::holds_alternative<op::Add>(here.what)) return false;
    for (const op::Op& other : altered.program().ops) {
      const auto* scale = std::get_if<op::Scale>(&other.what);
      if (scale == nullptr || other.outputs[0] != here.inputs[1]) continue;
      const double factor = scale->factor;
      return reads_value(1, other.inputs[0])(altered, op) && times(factor)(altered, op);
    }
    return false;
  };
}

}  // namespace lockstep::doctor
