// What eliza_inference_set_option can set.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "constraint/constraint.h"
#include "engine/model/devices.h"
#include "engine/model/lora.h"
#include "engine/pass/cancel_flag.h"
#include "grammar/states_grammar.h"
#include "llama.h"
#include "sampling/token_selector.h"

namespace eliza {

enum class Strategy {
    automatic,       // tree or skip-ahead, whichever the measured costs of a pass favour
    token_by_token,  // every token of a span is decoded at once, alone: the reference
    skip_ahead,      // a token is decoded when a later choice needs the logits after it
    tree,            // all decisions that may follow are decoded in one pass
};

struct Options {
    int32_t n_gpu_layers = -1;
    bool use_mmap = true;
    DeviceChoice devices;
    bool with_mtp_head = true;  // where the file has one
    std::vector<LoraFile> lora;

    int32_t n_ctx = 0;
    int32_t n_slots = 8;
    int32_t n_batch = 512;
    int32_t park_after = 8;  // passes of others, of what closed streams have left in the KV cache; 0: never
    int32_t n_threads = 0;
    bool share_passes = true;                        // streams go through the model together
    std::chrono::milliseconds slot_wait{30 * 1000};  // for a slot to become free
    llama_flash_attn_type flash_attn = LLAMA_FLASH_ATTN_TYPE_AUTO;

    SamplingParams sampling;  // where a stream's configuration says nothing else
    GrammarOrder grammar_order = GrammarOrder::last;
    std::optional<GrammarTriggers> grammar_triggers;
    bool grammar_by_llama_cpp = false;  // the reference: llama.cpp's own sampler follows the grammar
    int32_t grammar_budget = GrammarLimits::default_n_steps;  // steps through a grammar for one token
    std::string model_id;
    int32_t span_limit = Constraint::default_span_limit;
    Strategy strategy = Strategy::automatic;
    bool restrict_head = true;      // where that is possible, only the logits of legal tokens are computed
    bool backend_sampling = false;  // or else only they are copied from the device

    // The reference computes all logits in llama.cpp's own pass.
    bool restricts_head() const { return restrict_head && strategy != Strategy::token_by_token; }

    // Of a grammar whose work `cancelled` ends; it must outlive them.
    GrammarLimits grammar_limits(CancelFlag & cancelled) const;
};

// How far a context has come; an option that comes too late is an error.
enum class ContextStage { created, model_loaded, stream_opened };

// Throws Error that names the option and what it allows; `options` is then unchanged.
void set_option(Options & options, ContextStage stage, const std::string & key, const std::string & value);

}  // namespace eliza
