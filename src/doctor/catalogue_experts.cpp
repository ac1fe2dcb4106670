// Hypotheses on mixtures of experts: the choice, its weights, the experts and their sum.
#include <algorithm>
#include <cmath>

#include "doctor/hypothesis.h"

namespace lockstep::doctor {
namespace {

const op::Op* maker_of(const op::Program& program, op::ValueId id) {
  for (const op::Op& op : program.ops)
    if (op.outputs[0] == id) return &op;
  return nullptr;
}

const char* scoring_name(op::Scoring scoring) {
  return scoring == op::Scoring::kSoftmax ? "softmax" : "sigmoid";
}

op::Scoring other_scoring(op::Scoring scoring) {
  return scoring == op::Scoring::kSoftmax ? op::Scoring::kSigmoid : op::Scoring::kSoftmax;
}

void weights_hypotheses(const Findings& findings, size_t index, std::vector<Hypothesis>& out) {
  const op::Program& program = findings.program();
  const op::Op& op = program.ops[index];
  const auto& own = std::get<op::Weigh>(op.what);
  const bool softmax = own.scoring == op::Scoring::kSoftmax;
  std::string text = own.normalize
                         ? "the weights of the chosen experts are not divided by their sum"
                         : "the weights of the chosen experts are divided by their sum";
  if (softmax)
    text += own.normalize ? " (a softmax of all experts in place of one of the chosen)"
                          : " (a softmax of the chosen experts in place of one of all)";
  out.push_back({"experts.normalization",
                 text,
                 "Look at where the weights of experts are normalized, and at whether the softmax "
                 "comes before or after the choice.",
                 {{"normalized", std::string(own.normalize ? "no" : "yes")}},
                 weigh([](op::Weigh& weigh) {
                   weigh.normalize = !weigh.normalize;
                   return true;
                 })});
  const op::Scoring other = other_scoring(own.scoring);
  for (const bool normalize : {own.normalize, !own.normalize})
    out.push_back({"experts.scoring",
                   fmt::format("the function of the router is {}, not {}{}", scoring_name(other),
                               scoring_name(own.scoring),
                               normalize == own.normalize ? ""
                               : normalize                ? ", and weights are divided by their sum"
                                           : ", and weights are not divided by their sum"),
                   "Look at the function that makes scores of the router's numbers.",
                   {{"kind", std::string(scoring_name(other))}},
                   weigh([=](op::Weigh& weigh) {
                     weigh.scoring = other;
                     weigh.normalize = normalize;
                     return true;
                   })});
  if (own.scale != 1)
    for (const double found : {1.0, own.scale * own.scale, 1 / own.scale})
      out.push_back(
          {"experts.scale",
           found == 1
               ? fmt::format("the factor {:g} of the weights is left out", own.scale)
               : fmt::format("the factor of the weights is {:g}, not {:g}", found, own.scale),
           "Look at the factor that the file has for the weights of experts.",
           {{"expected", own.scale}, {"found", found}},
           weigh([=](op::Weigh& weigh) {
             weigh.scale = found;
             return true;
           })});
  const op::Op* choice = maker_of(program, op.inputs[1]);
  const auto* choose = choice != nullptr ? std::get_if<op::Choose>(&choice->what) : nullptr;
  if (choose != nullptr && choose->bias)
    out.push_back({"experts.bias_in_weights",
                   fmt::format("{} is added to the weights too: it is for the choice alone",
                               choose->bias->name),
                   "Look at which scores the weights are taken from: those before the bias.",
                   {{"tensor", choose->bias->name}},
                   biased_weights(*choose->bias)});
}

// What a slot counts, where the right weights are known and not used so.
void slot_hypotheses(size_t slots, bool of_sum, std::vector<Hypothesis>& out) {
  const auto add = [&](const char* how, const std::string& text, const SlotWeights& formula) {
    out.push_back({"experts.weights",
                   text,
                   "Look at which weight belongs to which chosen expert.",
                   {{"how", std::string(how)}},
                   of_sum ? slot_sum(
                                [formula](size_t slot, std::span<const double> weights) {
                                  return formula(slot, {}, weights);
                                },
                                fmt::format("sum over slots, where {}", text))
                          : slot_weights(formula, text)});
  };
  const auto count = static_cast<double>(slots);
  add("ones", "all chosen experts count 1",
      [](size_t, std::span<const double>, std::span<const double>) { return 1.0; });
  add("equal", fmt::format("all chosen experts count 1 / {}", slots),
      [=](size_t, std::span<const double>, std::span<const double>) { return 1 / count; });
  add("reversed", "the weights of the chosen experts are in reverse order",
      [](size_t slot, std::span<const double>, std::span<const double> weights) {
        return weights[weights.size() - 1 - slot];
      });
  for (size_t kept = 0; kept < slots; ++kept)
    add("one", fmt::format("of the chosen experts only number {} counts", kept + 1),
        [=](size_t slot, std::span<const double>, std::span<const double> weights) {
          return slot == kept ? weights[slot] : 0;
        });
  if (of_sum) return;
  add("router", "the weights are the router's numbers as they are",
      [](size_t slot, std::span<const double> router, std::span<const double>) {
        return router[slot];
      });
  add("softmax twice", "a second softmax is taken of the weights",
      [](size_t slot, std::span<const double>, std::span<const double> weights) {
        double sum = 0;
        for (const double weight : weights) sum += std::exp(weight);
        return std::exp(weights[slot]) / sum;
      });
}

void products_hypotheses(const Findings& findings, size_t index, std::vector<Hypothesis>& out) {
  const auto& all = std::get<op::ExpertLinear>(findings.program().ops[index].what);
  for (const int64_t offset : {1, -1, 2, -2})
    if (std::abs(offset) < all.experts)
      out.push_back(
          {"experts.index",
           fmt::format("it takes {} of expert e {:+d} for expert e", all.weight.name, offset),
           "Look at the index into the experts' weights, and at where they start.",
           {{"offset", offset}},
           weights_of_expert(offset)});
  for (const op::Op& other : findings.program().ops) {
    const auto* used = std::get_if<op::ExpertLinear>(&other.what);
    if (used == nullptr || used->weight.data.data() == all.weight.data.data()) continue;
    const bool same_layer = other.layer == findings.program().ops[index].layer;
    const auto role = [](const std::string& name) { return name.substr(name.find('.', 4) + 1); };
    const bool same_role = role(used->weight.name) == role(all.weight.name);
    if (!same_layer && !same_role) continue;
    Hypothesis made{same_role ? "weight.other_layer" : "weight.other_tensor",
                    fmt::format("it uses {} in place of {}", used->weight.name, all.weight.name),
                    "Look at the name under which this tensor is looked up.",
                    {{"tensor", all.weight.name}},
                    other_expert_weight(used->weight)};
    made.of_one_op = true;
    if (same_role)
      made.parameters.push_back({"layer", other.layer});
    else
      made.parameters.push_back({"used", used->weight.name});
    out.push_back(std::move(made));
  }
}

}  // namespace

void expert_hypotheses(const Findings& findings, size_t index, std::vector<Hypothesis>& out) {
  const op::What& what = findings.program().ops[index].what;
  if (std::holds_alternative<op::Weigh>(what)) weights_hypotheses(findings, index, out);
  const bool of_sum = std::holds_alternative<op::MixExperts>(what);
  if (of_sum || std::holds_alternative<op::Weigh>(what)) {
    const op::Op& op = findings.program().ops[index];
    const int64_t slots = findings.program().value(of_sum ? op.inputs[0] : op.outputs[0]).width;
    if (slots > 1) slot_hypotheses(static_cast<size_t>(slots), of_sum, out);
  }
  if (std::holds_alternative<op::ExpertLinear>(what)) products_hypotheses(findings, index, out);
}

bool shared_expert_hypotheses(const Findings& findings, size_t index,
                              std::vector<Hypothesis>& out) {
  const op::Program& program = findings.program();
  const op::Op& op = program.ops[index];
  const op::Op* chosen = maker_of(program, op.inputs[0]);
  if (chosen == nullptr || !std::holds_alternative<op::MixExperts>(chosen->what)) return false;
  const std::string fix = "Look at the sum of the chosen experts and of the one that all share.";
  out.push_back({"experts.shared_missing",
                 "the expert that all tokens share is left out",
                 fix,
                 {},
                 passes_on(0)});
  out.push_back({"experts.chosen_missing",
                 "the chosen experts are left out: it is the shared one alone",
                 fix,
                 {},
                 passes_on(1)});
  const op::Op* gate = maker_of(program, op.inputs[1]);
  if (gate != nullptr && std::holds_alternative<op::Gate>(gate->what))
    out.push_back({"experts.gate_missing",
                   "the gate of the expert that all tokens share is left out",
                   "Look at the sigmoid that the shared expert's result is multiplied with.",
                   {},
                   reads_value(1, gate->inputs[0])});
  return true;
}

std::vector<Hypothesis> choice_hypotheses(const Findings& findings, size_t index) {
  const auto* own = std::get_if<op::Choose>(&findings.program().ops[index].what);
  std::vector<Hypothesis> out;
  if (own == nullptr) return out;
  const auto add = [&](const char* how, std::string text, const std::string& fix,
                       Alteration alteration) {
    out.push_back({"experts.choice",
                   std::move(text),
                   fix,
                   {{"how", std::string(how)}},
                   std::move(alteration)});
  };
  const std::string groups_fix = "Look at how groups of experts are chosen before the experts.";
  if (own->bias)
    add("bias", fmt::format("{} is not added for the choice", own->bias->name),
        "Look at the scores that experts are chosen by.", choose([](op::Choose& choose) {
          choose.bias.reset();
          return true;
        }));
  if (own->groups > 1) {
    add("groups", "experts are chosen from all groups", groups_fix, choose([](op::Choose& choose) {
          choose.groups = choose.groups_used = 1;
          return true;
        }));
    const int64_t other = own->group_scores > 1 ? 1 : 2;
    add("group_scores",
        fmt::format("groups are taken by their {} largest scores, not by {}", other,
                    own->group_scores),
        groups_fix, choose([other](op::Choose& choose) {
          choose.group_scores = other;
          return true;
        }));
    for (const int64_t used : {own->groups_used + 1, own->groups_used - 1})
      if (used > 0 && used < own->groups)
        add("groups_used", fmt::format("{} groups are used, not {}", used, own->groups_used),
            groups_fix, choose([used](op::Choose& choose) {
              choose.groups_used = used;
              return true;
            }));
  }
  if (own->bias || own->groups > 1)
    add("scoring",
        fmt::format("experts are chosen by the {}, not by the {}",
                    scoring_name(other_scoring(own->scoring)), scoring_name(own->scoring)),
        "Look at the function that makes scores of the router's numbers.",
        choose([](op::Choose& choose) {
          choose.scoring = other_scoring(choose.scoring);
          return true;
        }));
  add("rank", "the best expert is passed over: the choice begins with the second",
      "Look at where the sorted experts are cut off.", skipped_experts(1));
  add("worst", "the experts with the least scores are chosen",
      "Look at the order in which experts are sorted.", worst_experts());
  for (const int64_t offset : {1, -1})
    add("index", fmt::format("the numbers of the chosen experts are off by {:+d}", offset),
        "Look at whether experts are counted from 0.", expert_numbers(offset));
  return out;
}

}  // namespace lockstep::doctor
