#include "engine/base/options.h"

#include <functional>
#include <limits>
#include <vector>

#include "error.h"
#include "parse_value.h"

namespace eliza {
namespace {

struct Option {
    const char * key;
    ContextStage until;    // the last stage in which it may be set
    const char * allowed;  // for error messages
    std::function<bool(Options &, const std::string &)> set;
};

constexpr int32_t max_int = std::numeric_limits<int32_t>::max();
constexpr int32_t max_ctx = 1 << 24;

using S = ContextStage;

// A static object as described in platform/process.h.
const auto & table = *new std::vector<Option>{
    {"n_gpu_layers", S::created, "-1 (all) or a number of layers",
     [](Options & o, const std::string & v) { return parse_number(v, -1, max_int, o.n_gpu_layers); }},
    {"use_mmap", S::created, "0 or 1",
     [](Options & o, const std::string & v) { return parse_name<bool>(v, {{"0", false}, {"1", true}}, o.use_mmap); }},
    {"device", S::created, "auto, none or names of devices, joined by commas",
     [](Options & o, const std::string & v) {
         parse_devices(v, o.devices);
         return true;
     }},
    {"mtp_head", S::created, "on or off",
     [](Options & o, const std::string & v) {
         return parse_name<bool>(v, {{"on", true}, {"off", false}}, o.with_mtp_head);
     }},
    {"lora", S::created, "",
     [](Options & o, const std::string & v) {
         o.lora = parse_lora(v);
         return true;
     }},
    {"rpc", S::created, "host:port,...",
     [](Options & o, const std::string & v) {
         o.devices.rpc = parse_rpc_servers(v);
         return true;
     }},
    {"n_ctx", S::model_loaded, "0 (from the model) to 16777216 tokens",
     [](Options & o, const std::string & v) { return parse_number(v, 0, max_ctx, o.n_ctx); }},
    {"n_slots", S::model_loaded, "1 to 64",
     [](Options & o, const std::string & v) { return parse_number(v, 1, 64, o.n_slots); }},
    {"kv_unified", S::model_loaded, "on or off",
     [](Options & o, const std::string & v) {
         return parse_name<bool>(v, {{"on", true}, {"off", false}}, o.kv_unified);
     }},
    {"n_batch", S::model_loaded, "1 to 65536 tokens",
     [](Options & o, const std::string & v) { return parse_number(v, 1, 65536, o.n_batch); }},
    {"parking", S::model_loaded, "on or off",
     [](Options & o, const std::string & v) { return parse_name<bool>(v, {{"on", true}, {"off", false}}, o.parks); }},
    {"n_threads", S::model_loaded, "0 (from the machine) to 512",
     [](Options & o, const std::string & v) { return parse_number(v, 0, 512, o.n_threads); }},
    {"batching", S::model_loaded, "auto or off",
     [](Options & o, const std::string & v) {
         return parse_name<bool>(v, {{"auto", true}, {"off", false}}, o.share_passes);
     }},
    {"slot_wait_ms", S::stream_opened, "0 to 2147483647 milliseconds",
     [](Options & o, const std::string & v) {
         int32_t milliseconds = 0;
         const bool is_number = parse_number(v, 0, max_int, milliseconds);
         o.slot_wait = is_number ? std::chrono::milliseconds(milliseconds) : o.slot_wait;
         return is_number;
     }},
    {"flash_attn", S::model_loaded, "auto, on or off",
     [](Options & o, const std::string & v) {
         return parse_name<llama_flash_attn_type>(v,
                                                  {{"auto", LLAMA_FLASH_ATTN_TYPE_AUTO},
                                                   {"on", LLAMA_FLASH_ATTN_TYPE_ENABLED},
                                                   {"off", LLAMA_FLASH_ATTN_TYPE_DISABLED}},
                                                  o.flash_attn);
     }},
    {"grammar_order", S::stream_opened, "last or first",
     [](Options & o, const std::string & v) {
         return parse_name<GrammarOrder>(v, {{"last", GrammarOrder::last}, {"first", GrammarOrder::first}},
                                         o.grammar_order);
     }},
    {"grammar_triggers", S::stream_opened, "",
     [](Options & o, const std::string & v) {
         o.grammar_triggers = v.empty() ? std::nullopt : std::optional<GrammarTriggers>(parse_grammar_triggers(v));
         return true;
     }},
    {"grammar_engine", S::stream_opened, "states or llama.cpp",
     [](Options & o, const std::string & v) {
         return parse_name<bool>(v, {{"states", false}, {"llama.cpp", true}}, o.grammar_by_llama_cpp);
     }},
    {"grammar_budget", S::stream_opened, "1 to 2147483647 steps",
     [](Options & o, const std::string & v) { return parse_number(v, 1, max_int, o.grammar_budget); }},
    {"model_id", S::stream_opened, "any text",
     [](Options & o, const std::string & v) {
         o.model_id = v;
         return true;
     }},
    {"span_limit", S::stream_opened, "1 to 2147483647 tokens",
     [](Options & o, const std::string & v) { return parse_number(v, 1, max_int, o.span_limit); }},
    {"restricted_head", S::stream_opened, "auto or off",
     [](Options & o, const std::string & v) {
         return parse_name<bool>(v, {{"auto", true}, {"off", false}}, o.restrict_head);
     }},
    {"strategy", S::stream_opened, "auto, tree, skip-ahead or token-by-token",
     [](Options & o, const std::string & v) {
         return parse_name<Strategy>(v,
                                     {{"auto", Strategy::automatic},
                                      {"tree", Strategy::tree},
                                      {"skip-ahead", Strategy::skip_ahead},
                                      {"token-by-token", Strategy::token_by_token}},
                                     o.strategy);
     }},
};

}  // namespace

GrammarLimits Options::grammar_limits(CancelFlag & cancelled) const {
    GrammarLimits limits;
    limits.n_steps = grammar_budget;
    limits.checkpoint = [&cancelled] { cancelled.throw_if_set(); };
    return limits;
}

void set_option(Options & options, ContextStage stage, const std::string & key, const std::string & value) {
    std::string known;
    for (const Option & option : table) {
        known += (known.empty() ? "" : ", ") + std::string(option.key);
        if (key != option.key) {
            continue;
        }
        if (stage > option.until) {
            throw invalid_argument(
                "option " + key + ": too late; set it before " +
                (option.until == ContextStage::created ? "the model is loaded" : "the first stream is opened"));
        }
        if (!option.set(options, value)) {
            throw invalid_argument("option " + key + ": expected " + option.allowed + ", got \"" + value + "\"");
        }
        return;
    }
    if (!set_sampling_param(options.sampling, key, value)) {
        throw invalid_argument("unknown option \"" + key + "\"; known options: " + known + ", " +
                               sampling_param_names());
    }
}

}  // namespace eliza
