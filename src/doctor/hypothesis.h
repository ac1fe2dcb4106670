// A hypothesis is a way in which the engine may be wrong: how it alters the forward pass, what it
// is called, and what to say of it.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "doctor/alterations.h"
#include "doctor/diagnosis.h"
#include "model/model.h"
#include "trace/trace.h"

namespace lockstep::doctor {

struct Hypothesis {
  std::string cause;
  std::string text;  // a clause on the engine: "the rope base is 500000, not 10000"
  std::string fix;   // what to look at, a sentence
  std::vector<Parameter> parameters;
  Alteration alter;
  // The cause of one that has none of its own where it explains the whole of a checkpoint alone.
  std::string by_itself = {};
  int fitted = 0;            // numbers that were found from the trace
  bool of_one_op = false;    // it makes no sense for other ops of the same kind: it names a tensor
  bool of_any_kind = false;  // it may hold for ops of other kinds too: they have weights alike
  bool rounds = false;       // it rounds, and a number on the edge of two may fall to either side
  // How likely, beside hypotheses that explain as much: the lower the likelier. The order of the
  // catalogue decides where it is the same.
  int rank = 0;
};

// What hypotheses are made from.
struct Findings {
  const parity::Forward& forward;
  const trace::Trace& trace;
  const model::Model& model;
  std::span<const int64_t> wrong;  // positions
  const op::Program& program() const { return forward.program; }
};

// The catalogue: all hypotheses on one op that need no number from the trace, likeliest first. A
// file for each group of ops.
std::vector<Hypothesis> catalogue(const Findings& findings, size_t op);
void activation_hypotheses(const Findings& findings, size_t op, std::vector<Hypothesis>& out);
void norm_hypotheses(const Findings& findings, size_t op, std::vector<Hypothesis>& out);
void weight_hypotheses(const Findings& findings, size_t op, std::vector<Hypothesis>& out);
void layout_hypotheses(const Findings& findings, size_t op, std::vector<Hypothesis>& out);
void rope_hypotheses(const Findings& findings, size_t op, std::vector<Hypothesis>& out);
void rotation_hypotheses(const Findings& findings, size_t op, std::vector<Hypothesis>& out);
void attention_hypotheses(const Findings& findings, size_t op, std::vector<Hypothesis>& out);
void expert_hypotheses(const Findings& findings, size_t op, std::vector<Hypothesis>& out);
void row_hypotheses(const Findings& findings, size_t op, std::vector<Hypothesis>& out);

// The first position of the step that a position belongs to.
int64_t step_begin(const trace::Trace& trace, int64_t position);
// Of the sum of chosen experts and of one that all share; false where the op is another sum.
bool shared_expert_hypotheses(const Findings& findings, size_t op, std::vector<Hypothesis>& out);
// Of a choice of experts, which is right or wrong: its numbers have no distance.
std::vector<Hypothesis> choice_hypotheses(const Findings& findings, size_t op);

// The name without its layer: "q_rope".
std::string short_name(const op::Value& value);

}  // namespace lockstep::doctor
