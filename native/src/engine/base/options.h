// The options of eliza_inference_set_option.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cancel_flag.h"
#include "constraint/constraint.h"
#include "engine/model/devices.h"
#include "engine/model/lora.h"
#include "grammar/states_grammar.h"
#include "llama.h"
#include "sampling/token_selector.h"

namespace eliza {

enum class Strategy {
    automatic,       // tree or skip-ahead, depending on the measured cost of a pass
    token_by_token,  // decode each token of a span immediately and alone: the reference implementation
    skip_ahead,      // decode a token only when a later choice needs the logits after it
    tree,            // decode all possible decisions in one pass
};

struct Options {
    int32_t n_gpu_layers = -1;
    bool use_mmap = true;
    DeviceChoice devices;
    bool with_mtp_head = true;  // load the MTP head, if the file has one
    std::vector<LoraFile> lora;

    int32_t n_ctx = 0;
    int32_t n_slots = 8;
    int32_t n_batch = 512;
    bool parks = true;  // tokens that leave a full KV cache move to host memory, otherwise they are dropped
    int32_t n_threads = 0;
    bool share_passes = true;       // streams share forward passes
    int32_t slot_wait_ms = 30'000;  // maximum wait for a free slot
    llama_flash_attn_type flash_attn = LLAMA_FLASH_ATTN_TYPE_AUTO;

    SamplingParams sampling;  // for settings that a stream's configuration leaves off
    GrammarOrder grammar_order = GrammarOrder::last;
    std::optional<GrammarTriggers> grammar_triggers;
    bool grammar_by_llama_cpp = false;  // use llama.cpp's own grammar sampler, the reference implementation
    int32_t grammar_budget = GrammarLimits::default_n_steps;  // maximum steps through a grammar for one token
    std::string model_id;
    int32_t span_limit = Constraint::default_span_limit;
    Strategy strategy = Strategy::automatic;
    bool restrict_head = true;  // compute only the logits of the allowed tokens, where possible

    // The reference implementation computes all logits in llama.cpp's own pass.
    bool restricts_head() const { return restrict_head && strategy != Strategy::token_by_token; }

    // Limits for a grammar; setting `cancelled` ends its work. `cancelled` must outlive the limits.
    GrammarLimits grammar_limits(CancelFlag & cancelled) const;
};

// The state of a context. Some options cannot be set after a certain stage.
enum class ContextStage { created, model_loaded, stream_opened };

// Sets an option. Throws an Error that names the option and the allowed values; `options` is then unchanged.
void set_option(Options & options, ContextStage stage, const std::string & key, const std::string & value);

}  // namespace eliza
