#include "tokenizer/pre_tokenizers.h"

#include <fmt/format.h>

namespace lockstep::tokenizer {
namespace {

// The patterns are those of the models' tokenizer.json files. \s, \p{L} and \p{N} are read as
// splitter.cpp defines them. What llama.cpp approximates for want of \p{Lu} and \p{Ll} in its
// engine (tekken, gpt-4o) stands here as the models have it.
using Patterns = std::string_view[];

constexpr Patterns kGpt2 = {
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)"};

// GPT-2's, with every digit alone.
constexpr Patterns kSingleDigits = {R"(\p{N})", kGpt2[0]};

// In either case; \x{17f} is a long s, whose upper case is S.
#define LS_CONTRACTION R"((?:'[sS\x{17f}]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]))"

constexpr Patterns kLlama3 = {
    LS_CONTRACTION
    R"(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};

constexpr Patterns kQwen2 = {
    LS_CONTRACTION
    R"(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};

constexpr Patterns kQwen35 = {
    LS_CONTRACTION R"(|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*)"
                   R"(|\s*[\r\n]+|\s+(?!\S)|\s+)"};

constexpr Patterns kSeedCoder = {
    LS_CONTRACTION
    R"(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+)"};

constexpr Patterns kBailing = {
    R"('(?:[sSdDmMtT]|[lL][lL]|[vV][eE]|[rR][eE])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N})"
    R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)"};

#define LS_UPPER R"([\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])"
#define LS_LOWER R"([\p{Ll}\p{Lm}\p{Lo}\p{M}])"

constexpr Patterns kTekken = {R"([^\r\n\p{L}\p{N}]?)" LS_UPPER "*" LS_LOWER
                              "+"
                              R"(|[^\r\n\p{L}\p{N}]?)" LS_UPPER "+" LS_LOWER
                              "*"
                              R"(|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};

constexpr Patterns kGpt4o = {R"([^\r\n\p{L}\p{N}]?)" LS_UPPER "*" LS_LOWER "+" LS_CONTRACTION
                             "?"
                             R"(|[^\r\n\p{L}\p{N}]?)" LS_UPPER "+" LS_LOWER "*" LS_CONTRACTION
                             "?"
                             R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};

constexpr Patterns kFalcon = {R"([\p{P}\$\+<=>\^~\|`]+)", kGpt2[0], "[0-9][0-9][0-9]"};

constexpr Patterns kDefault = {R"([\p{P}\$\+<=>\^~\|]+)", kGpt2[0], R"(\p{N}+)", "[0-9][0-9][0-9]"};

constexpr Patterns kBloom = {
    R"( ?[^(\s|.,!?\x{2026}\x{3002}\x{ff0c}\x{3001}\x{964}\x{6d4}\x{60c})]+)"};
constexpr Patterns kViking = {kBloom[0], R"(\p{N})"};

constexpr Patterns kDeepseek3 = {R"(\p{N}{1,3})",
                                 R"([\x{4e00}-\x{9fa5}\x{3040}-\x{309f}\x{30a0}-\x{30ff}]+)",
                                 R"re([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+)re"
                                 R"(|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*)"
                                 R"(|\s*[\r\n]+|\s+(?!\S)|\s+)"};

constexpr std::string_view kDeepseekCjk =
    R"([\x{4e00}-\x{9fa5}\x{800}-\x{4e00}\x{ac00}-\x{d7ff}]+)";

constexpr Patterns kDeepseekCoder = {R"([\r\n])", R"(\s?\p{L}+)", R"(\s?\p{P}+)", kDeepseekCjk,
                                     R"(\p{N})"};

constexpr Patterns kDeepseekLlm = {
    R"([\r\n])",
    R"(\s?[)"
    R"(A-Za-z\x{b5}\x{c0}-\x{d6}\x{d8}-\x{f6}\x{f8}-\x{1ba}\x{1bc}-\x{1bf}\x{1c4}-\x{293})"
    R"(\x{295}-\x{2af}\x{370}-\x{373}\x{376}\x{377}\x{37b}-\x{37d}\x{37f}\x{386})"
    R"(\x{388}-\x{38a}\x{38c}\x{38e}-\x{3a1}\x{3a3}-\x{3f5}\x{3f7}-\x{481}\x{48a}-\x{52f})"
    R"(\x{531}-\x{556}\x{10a0}-\x{10c5}\x{13a0}-\x{13f5}\x{13f8}-\x{13fd}\x{1c90}-\x{1cba})"
    R"(\x{1cbd}-\x{1cbf}\x{1d00}-\x{1d2b}\x{1d6b}-\x{1d77}\x{1d79}-\x{1d9a})"
    R"(\x{1e00}-\x{1f15}\x{1f18}-\x{1f1d}\x{1f20}-\x{1f45}\x{1f48}-\x{1f4d})"
    R"(\x{1f50}-\x{1f57}\x{1f59}\x{1f5b}\x{1f5d}\x{1f5f}-\x{1f7d}\x{1f80}-\x{1fb4})"
    R"(\x{1fb6}-\x{1fbc}\x{1fbe}\x{1fc2}-\x{1fc4}\x{1fc6}-\x{1fcc}\x{1fd0}-\x{1fd3})"
    R"(\x{1fd6}-\x{1fdb}\x{1fe0}-\x{1fec}\x{1ff2}-\x{1ff4}\x{1ff6}-\x{1ffc}\x{2102}\x{2107})"
    R"(\x{210a}-\x{2113}\x{2115}\x{2119}-\x{211d}\x{2124}\x{2126}\x{2128}\x{212a}-\x{212d})"
    R"(\x{212f}-\x{2134}\x{2139}\x{213c}-\x{213f}\x{2145}-\x{2149}\x{214e}\x{2183}\x{2184})"
    R"(\x{2c00}-\x{2c7b}\x{2c7e}-\x{2ce4}\x{2ceb}-\x{2cee}\x{2cf2}\x{2cf3}\x{a640}-\x{a66d})"
    R"(\x{a680}-\x{a69b}\x{a722}-\x{a76f}\x{a771}-\x{a787}\x{a78b}-\x{a78e})"
    R"(\x{ab70}-\x{abbf}\x{fb00}-\x{fb06}\x{fb13}-\x{fb17}\x{ff21}-\x{ff3a})"
    R"(\x{ff41}-\x{ff5a}\x{10400}-\x{1044f}\x{104b0}-\x{104d3}\x{104d8}-\x{104fb})"
    R"(\x{10c80}-\x{10cb2}\x{10cc0}-\x{10cf2}\x{118a0}-\x{118df}\x{1e900}-\x{1e943})"
    R"(]+)",
    R"(\s?[!-/:-~\x{ff01}-\x{ff0f}\x{ff1a}-\x{ff5e}\x{2018}-\x{201f}\x{3000}-\x{3002}]+)",
    R"(\s+$)",
    kDeepseekCjk,
    R"(\p{N}+)"};

#undef LS_CONTRACTION
#undef LS_UPPER
#undef LS_LOWER

constexpr Patterns kGpt2Names = {"gpt-2", "phi-2", "gigachat", "a.x-4.0",         "mellum", "mpt",
                                 "olmo",  "jais",  "trillion", "granite-docling", "exaone4"};
constexpr Patterns kSingleDigitNames = {"starcoder", "refact", "command-r",  "smollm",
                                        "codeshell", "exaone", "minerva-7b", "mellum2"};
constexpr Patterns kLlama3Names = {"llama-bpe", "llama3",  "llama-v3", "falcon3",
                                   "falcon-h1", "pixtral", "midm-2.0", "lfm2"};
constexpr Patterns kLlama3PlainNames = {"dbrx", "smaug-bpe", "glm4", "chatglm-bpe"};
constexpr Patterns kQwen2Names = {"qwen2",     "deepseek-r1-qwen", "kormo",  "megrez",
                                  "stablelm2", "hunyuan",          "grok-2", "solar-open"};
constexpr Patterns kQwen35Names = {"qwen35"};
constexpr Patterns kSeedCoderNames = {"seed-coder"};
constexpr Patterns kBailingNames = {"bailingmoe", "bailingmoe2", "llada-moe"};
constexpr Patterns kTekkenNames = {"tekken"};
constexpr Patterns kGpt4oNames = {"gpt-4o", "llama4", "kanana2", "minimax-m2"};
constexpr Patterns kFalconNames = {"falcon"};
constexpr Patterns kDefaultNames = {"default"};
constexpr Patterns kBloomNames = {"bloom", "poro-chat", "gpt3-finnish"};
constexpr Patterns kVikingNames = {"viking"};
constexpr Patterns kDeepseek3Names = {"deepseek-v3", "hunyuan-dense", "joyai-llm"};
constexpr Patterns kDeepseekCoderNames = {"deepseek-coder"};
constexpr Patterns kDeepseekLlmNames = {"deepseek-llm"};

const PreTokenizer kTable[] = {
    {kGpt2Names, kGpt2},
    {kSingleDigitNames, kSingleDigits},
    {kLlama3Names, kLlama3, /*whole_words=*/true, /*add_bos=*/true},
    {kLlama3PlainNames, kLlama3},
    {kQwen2Names, kQwen2},
    {kQwen35Names, kQwen35},
    {kTekkenNames, kTekken, /*whole_words=*/true, /*add_bos=*/true},
    {kGpt4oNames, kGpt4o},
    {kDeepseekLlmNames, kDeepseekLlm},
    {kDeepseekCoderNames, kDeepseekCoder},
    {kDeepseek3Names, kDeepseek3},
    {kFalconNames, kFalcon},
    {kBloomNames, kBloom},
    {kVikingNames, kViking},
    {kSeedCoderNames, kSeedCoder},
    {kBailingNames, kBailing},
    {kDefaultNames, kDefault},
};

}  // namespace

const PreTokenizer* find_pre_tokenizer(std::string_view name) {
  for (const PreTokenizer& row : kTable) {
    for (const std::string_view known : row.names) {
      if (known == name) return &row;
    }
  }
  return nullptr;
}

std::string known_pre_tokenizers() {
  std::string list;
  for (const PreTokenizer& row : kTable) {
    for (const std::string_view known : row.names) {
      list += fmt::format("{}{}", list.empty() ? "" : ", ", known);
    }
  }
  return list;
}

}  // namespace lockstep::tokenizer
