#include "engine/base/options.h"

#include <limits>
#include <optional>
#include <vector>

#include "error.h"
#include "parse_value.h"

namespace eliza {
namespace {

constexpr int32_t max_int = std::numeric_limits<int32_t>::max();
constexpr int32_t max_ctx = 1 << 24;

using O = Options;
using Table = std::vector<Setting<O>>;

// Static objects as described in platform/process.h: one table for each stage that ends the time to set its options.
const auto & before_loading = *new Table{
    number("n_gpu_layers", &O::n_gpu_layers, -1, max_int, "-1 (all) or a number of layers"),
    choice<O, bool>("use_mmap", &O::use_mmap, {{"0", false}, {"1", true}}),
    {"device", "",
     [](O & o, const std::string & v) {
         parse_devices(v, o.devices);
         return true;
     }},
    on_or_off("mtp_head", &O::with_mtp_head),
    parsed("lora", &O::lora, parse_lora),
    {"rpc", "",
     [](O & o, const std::string & v) {
         o.devices.rpc = parse_rpc_servers(v);
         return true;
     }},
};
const auto & before_opening = *new Table{
    number("n_ctx", &O::n_ctx, 0, max_ctx, "0 (from the model) to 16777216 tokens"),
    number("n_slots", &O::n_slots, 1, 64, "1 to 64"),
    number("n_batch", &O::n_batch, 1, 65536, "1 to 65536 tokens"),
    on_or_off("parking", &O::parks),
    number("n_threads", &O::n_threads, 0, 512, "0 (from the machine) to 512"),
    on_or_off("batching", &O::share_passes, "auto"),
    choice<O, llama_flash_attn_type>("flash_attn", &O::flash_attn,
                                     {{"auto", LLAMA_FLASH_ATTN_TYPE_AUTO},
                                      {"on", LLAMA_FLASH_ATTN_TYPE_ENABLED},
                                      {"off", LLAMA_FLASH_ATTN_TYPE_DISABLED}}),
};
const auto & any_time = *new Table{
    number("slot_wait_ms", &O::slot_wait_ms, 0, max_int, "0 to 2147483647 milliseconds"),
    choice<O, GrammarOrder>("grammar_order", &O::grammar_order,
                            {{"last", GrammarOrder::last}, {"first", GrammarOrder::first}}),
    parsed("grammar_triggers", &O::grammar_triggers,
           [](const std::string & v) {
               return v.empty() ? std::nullopt : std::optional<GrammarTriggers>(parse_grammar_triggers(v));
           }),
    choice<O, bool>("grammar_engine", &O::grammar_by_llama_cpp, {{"states", false}, {"llama.cpp", true}}),
    number("grammar_budget", &O::grammar_budget, 1, max_int, "1 to 2147483647 steps"),
    any_text("model_id", &O::model_id),
    number("span_limit", &O::span_limit, 1, max_int, "1 to 2147483647 tokens"),
    on_or_off("restricted_head", &O::restrict_head, "auto"),
    choice<O, Strategy>("strategy", &O::strategy,
                        {{"auto", Strategy::automatic},
                         {"tree", Strategy::tree},
                         {"skip-ahead", Strategy::skip_ahead},
                         {"token-by-token", Strategy::token_by_token}}),
};

}  // namespace

GrammarLimits Options::grammar_limits(CancelFlag & cancelled) const {
    GrammarLimits limits;
    limits.n_steps = grammar_budget;
    limits.checkpoint = [&cancelled] { cancelled.throw_if_set(); };
    return limits;
}

void set_option(Options & options, ContextStage stage, const std::string & key, const std::string & value) {
    const struct {
        const Table & table;
        ContextStage until;
        const char * end;
    } parts[] = {{before_loading, ContextStage::created, "the model is loaded"},
                 {before_opening, ContextStage::model_loaded, "the first stream is opened"},
                 {any_time, ContextStage::stream_opened, ""}};
    std::string known;
    for (const auto & part : parts) {
        if (const Setting<O> * setting = find_setting(part.table, key)) {
            if (stage > part.until) {
                throw invalid_argument("option " + key + ": too late; set it before " + part.end);
            }
            apply(*setting, options, value);
            return;
        }
        known += names_of(part.table) + ", ";
    }
    if (!set_sampling_param(options.sampling, key, value)) {
        throw invalid_argument("unknown option \"" + key + "\"; known options: " + known + sampling_param_names());
    }
}

}  // namespace eliza
