// Small models with a multi-token prediction head, which none of the project's own models has.
//
// They have random weights in full precision and the vocabulary of model_path(). The words that are not control tokens
// form a cycle, and the output favours the successor of the last word. If the layers add nothing, a model follows that
// cycle and never ends. If they add something, they lead away from the cycle, depending on all earlier tokens.
#pragma once

#include <string>

namespace eliza::test {

// The predictions of the head, compared with the model itself.
enum class MtpHead {
    agrees,  // always the same as the model: no layer adds anything
    random,  // sometimes the same: all layers add something, and the head's layers add something else
    // Nothing: the metadata names the head of `random`, but its tensors are missing. llama.cpp nevertheless loads such
    // a "glm4moe" or "step35", and rejects such a "qwen35".
    absent,
};

struct MtpModelSpec {
    const char * arch;  // "glm4moe" (attention, experts), "qwen35" (three delta nets, one attention) or "step35"
                        // (attention with and without a sliding window)
    MtpHead head;
    int n_heads = 1;    // consecutive heads; llama.cpp runs more than one only in "step35"
    bool trunk = true;  // false: a file with only the head, to use together with the file of the whole model
};

// Returns the path of the model, which is written on the first call in this process and removed at its end. Throws
// std::invalid_argument for an inconsistent spec, and std::runtime_error if the file cannot be written.
std::string mtp_model_path(const MtpModelSpec & spec);

}  // namespace eliza::test
