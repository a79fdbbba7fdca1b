// Small models with a multi-token-prediction head, which none of the project's own models has.
//
// Random weights in full precision around the vocabulary of model_path(). The words that are no control tokens
// form one cycle, and the last word alone says which comes next. Where the layers add nothing a model goes along
// that cycle and never ends; where they add something they lead away from it, by all that came before.
#pragma once

#include <string>

namespace eliza::test {

// What the head of a model guesses, beside what the model itself goes on with.
enum class MtpHead {
    agrees,  // the same, as far ahead as one asks: no layer adds anything
    random,  // the same now and then: all layers add something, those of the head something else
    absent,  // nothing: the metadata names the head of `random`, its tensors are left out. llama.cpp loads such a
             // "glm4moe" or "step35" all the same and refuses such a "qwen35".
};

struct MtpModelSpec {
    const char * arch;  // "glm4moe" (attention, experts), "qwen35" (three delta nets, one attention) or "step35"
                        // (attention with and without a sliding window)
    MtpHead head;
    int n_heads = 1;    // heads one after the other; llama.cpp runs more than one in "step35" alone
    bool trunk = true;  // false: a file of the head alone, for use beside the file of the whole model
};

// Path of the model, written on the first call in this process and removed at its end. Throws
// std::invalid_argument for a spec that makes no sense, std::runtime_error if the file cannot be written.
std::string mtp_model_path(const MtpModelSpec & spec);

}  // namespace eliza::test
